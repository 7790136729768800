"""The seed of each completion, and the strings that end one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def completion_seed(
    run_seed: int, problem_id: str, version: int, draw_index: int, sample_index: int
) -> int:
    """A 63-bit seed that differs whenever any of the arguments does.

    Args:
        run_seed: The run's seed.
        problem_id: ``Problem.id``.
        version: Policy version that samples.
        draw_index: ``Draw.index``: a problem met twice under one version gets fresh randomness.
        sample_index: Position of the completion in its group.

    Returns:
        A number in [0, 2^63), from BLAKE2b over an unambiguous encoding; the same on every
        machine and in every Python process.
    """
    key = json.dumps([run_seed, problem_id, version, draw_index, sample_index])
    digest = hashlib.blake2b(key.encode("ascii"), digest_size=8, person=b"rlvr-seed").digest()
    return int.from_bytes(digest, "big") >> 1


WORLD = -1
"""The sample index of the world that the completions of a draw are played in."""


_REPLACEMENT = "\ufffd"  # what an incomplete multi-byte character decodes to
_MARGIN = 8


class StopStrings:
    """Finds stop strings of one tokenizer, in the text of tokens without special ones."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._texts: list[str] | None = None
        self._candidates: dict[tuple[tuple[str, ...], int], Tensor] = {}

    def special_ids(self, stops: Sequence[str]) -> set[int]:
        """Ids of those stop strings that are special tokens: no decoded text ever shows them."""
        special = zip(
            self._tokenizer.all_special_tokens, self._tokenizer.all_special_ids, strict=True
        )
        return {int(token) for text, token in special if text in stops}

    def candidates(self, stops: tuple[str, ...], vocabulary: int) -> Tensor:
        """Return the tokens that may complete one of the strings; (vocabulary,) bool."""
        key = (stops, vocabulary)
        if key not in self._candidates:
            ends = {stop[-1] for stop in stops}
            texts = self._vocabulary_texts()
            mask = [_REPLACEMENT in text or not ends.isdisjoint(text) for text in texts]
            mask = (mask + [False] * vocabulary)[:vocabulary]
            self._candidates[key] = torch.tensor(mask)
        return self._candidates[key]

    def found(self, stops: tuple[str, ...], token_T: Tensor) -> bool:
        """Whether the last token of a row completes a stop string.

        Args:
            stops: The strings.
            token_T: All tokens of the row.
        """
        need = max(map(len, stops)) + _MARGIN
        n = need
        text = self.text(token_T[-n:].tolist())
        while len(text) < need and n <= len(token_T):
            n *= 2
            text = self.text(token_T[-n:].tolist())
        if not any(stop in text for stop in stops):
            return False
        # the edge of a window may decode differently from the middle of the row
        whole = text if n > len(token_T) else self.text(token_T.tolist())
        return any(stop in whole for stop in stops)

    def text(self, token_ids: Sequence[int]) -> str:
        """Decode token ids without special tokens."""
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def _vocabulary_texts(self) -> list[str]:
        if self._texts is None:
            ids = list(range(len(self._tokenizer)))
            texts = self._tokenizer.batch_decode([[i] for i in ids])
            pieces = self._tokenizer.convert_ids_to_tokens(ids)
            # a leading space is lost when a SentencePiece token is decoded alone
            self._texts = [
                f" {text}" if (piece or "").startswith("\u2581") else text
                for text, piece in zip(texts, pieces, strict=True)
            ]
        return self._texts
