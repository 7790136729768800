"""Splits the packed tokens over a context-parallel group.

Every prompt and every completion is cut into 2C chunks, and process r of C has chunks r and
2C - 1 - r of each: under causal attention the first of them is as cheap as the last is dear. Texts
of fewer tokens than chunks have empty ones; their last chunk never is, so that the token behind
which an answer begins is process 0's, whatever its prompt.

Dimensions: N packed tokens (first the prompts', then the completions'), n of them of this process,
R pieces (chunks of this process that have a token), K keys of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rlvr_core.api import MicroBatch


@dataclass(frozen=True, slots=True)
class Split:
    """The packed tokens of a micro-batch, shared out over the processes of a group; on the CPU.

    Attributes:
        owner_N: Process that has each token.
        place_N: Its place among the tokens of that process.
        own_n: Packed places of this process's tokens, in order; the first token of all where it
            has none, which nobody looks at.
        most: Tokens of the process with most.
        query_len_R: Tokens of each piece.
        key_len_R: Keys that the last of them sees.
        key_K: Packed places of every piece's keys, one piece after the other.
    """

    owner_N: Tensor
    place_N: Tensor
    own_n: Tensor
    most: int
    query_len_R: Tensor
    key_len_R: Tensor
    key_K: Tensor

    @classmethod
    def of(cls, batch: MicroBatch, index: int, size: int) -> Split:
        """Share out a micro-batch.

        Args:
            batch: The rows.
            index: This process, counted from 0 within its group.
            size: Processes of the group.
        """
        host = batch.host  # lengths are known there, and no device is waited for
        length_G = torch.cat([host.prompt_len_S, host.fed_lengths()])
        first_G = length_G.cumsum(0) - length_G
        text_N = torch.arange(len(length_G)).repeat_interleave(length_G)
        offset_N = torch.arange(len(text_N)) - first_G[text_N]
        chunk_N = chunks(offset_N, length_G[text_N], size)
        owner_N = torch.minimum(chunk_N, 2 * size - 1 - chunk_N)
        place_N = torch.empty_like(owner_N)
        counts = []
        for process in range(size):
            theirs = (owner_N == process).nonzero()[:, 0]
            place_N[theirs] = torch.arange(len(theirs))
            counts.append(len(theirs))
        own_n = (owner_N == index).nonzero()[:, 0] if counts[index] else torch.zeros(1).long()
        piece_n = text_N[own_n] * 2 * size + chunk_N[own_n]
        _, query_len_R = torch.unique_consecutive(piece_n, return_counts=True)
        last_R = own_n[query_len_R.cumsum(0) - 1]
        # a completion's keys are those of its prompt and its own
        S = len(host.prompt_len_S)
        prompt_of_G = torch.cat([torch.arange(S), host.prompt_of_row_B])
        far_G = torch.where(torch.arange(len(length_G)) < S, 0, length_G[prompt_of_G])
        far_R = far_G[text_N[last_R]]
        key_len_R = far_R + offset_N[last_R] + 1
        piece_K = torch.arange(len(key_len_R)).repeat_interleave(key_len_R)
        at_K = torch.arange(len(piece_K)) - (key_len_R.cumsum(0) - key_len_R)[piece_K]
        text_K, far_K = text_N[last_R][piece_K], far_R[piece_K]
        key_K = torch.where(
            at_K < far_K, first_G[prompt_of_G[text_K]] + at_K, first_G[text_K] + at_K - far_K
        )
        return cls(owner_N, place_N, own_n, max(1, *counts), query_len_R, key_len_R, key_K)

    def gathered_keys(self) -> Tensor:
        """(K,) places of the keys where each process's tokens, padded, are behind the last's."""
        return self.owner_N[self.key_K] * self.most + self.place_N[self.key_K]


def chunks(offset_N: Tensor, length_N: Tensor, size: int) -> Tensor:
    """The chunk of each token, of 2 x ``size``: chunk c begins at floor(c length / (2 size))."""
    return ((offset_N + 1) * 2 * size - 1) // length_N


def bounds(length_R: Tensor) -> Tensor:
    """(R + 1,) where each of the sequences of these lengths begins, and where the last ends."""
    return F.pad(length_R.cumsum(0), (1, 0))
