"""The batched decoding loop, and the key-value cache of any Hugging Face causal LM."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from rlvr_core.api import Decoder, MachineError, RunError, SamplingParams
from rlvr_core.engines.sample import RandomStreams, RowSampling, sample
from rlvr_core.engines.stop import StopStrings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_COMPACT_BELOW = 0.85
"""Share of rows still alive below which finished ones are taken out of the batch: moving the
cache costs about as much as a step."""


@dataclass(frozen=True, slots=True)
class RowPlan:
    """One completion to sample.

    Attributes:
        params: How.
        seed: Of its own stream of random numbers.
        limit: Most tokens it may have; at least 1.
    """

    params: SamplingParams
    seed: int
    limit: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """A finished row."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length"]


def decode(
    decoder: Decoder,
    prompts: Sequence[tuple[int, ...]],
    plans: Sequence[Sequence[RowPlan]],
    *,
    eos_ids: Sequence[int],
    stop_strings: StopStrings,
    deadline: float | None = None,
    between: Callable[[int], None] | None = None,
) -> list[Sampled]:
    """Sample every row to its end.

    Args:
        decoder: The model; used up by this call.
        prompts: Token ids, none empty.
        plans: The rows of each prompt.
        eos_ids: Tokens that end a row; they are kept.
        stop_strings: Finds the rows' stop strings.
        deadline: ``time.monotonic()`` after which to give up.
        between: Called with the position of each token but the first, before it is computed; it
            may renew the decoder, and what it raises ends the loop.

    Returns:
        One result a row, prompt by prompt.

    Raises:
        RunError: If the deadline passed.
    """
    rows = [plan for group in plans for plan in group]
    device = decoder.device
    limit_B = torch.tensor([row.limit for row in rows], device=device)
    most = int(limit_B.max())
    logits_BV = decoder.prefill(prompts, [len(group) for group in plans], most)
    B, V = logits_BV.shape
    token_TB = torch.zeros(most, B, dtype=torch.long, device=device)
    logp_TB = torch.zeros(most, B, device=device)
    length_B = limit_B.clone()
    stopped_B = torch.zeros(B, dtype=torch.bool, device=device)
    ends = _Ends(rows, eos_ids, stop_strings, V, device)
    sampling = RowSampling.of([row.params for row in rows], V, device)
    streams = RandomStreams([row.seed for row in rows], device)
    alive_K = torch.arange(B, device=device)  # rows in the batch
    open_K = torch.ones(B, dtype=torch.bool, device=device)  # those of them still being sampled
    n_open = B
    shortest = int(limit_B.min())

    for t in range(most):
        if deadline is not None and time.monotonic() > deadline:
            raise RunError(f"generation passed its deadline after {t} tokens, {n_open} rows open")
        token_K, logp_K = sample(logits_BV, sampling, streams.at(t))
        if len(alive_K) == B:
            token_TB[t], logp_TB[t] = token_K, logp_K
        else:
            token_TB[t, alive_K], logp_TB[t, alive_K] = token_K, logp_K
        stop_K = ends.reached(token_K, open_K, alive_K, token_TB[: t + 1])
        over_K = stop_K if t + 1 < shortest else stop_K | (limit_B[alive_K] == t + 1)
        over_K = over_K & open_K
        n_over = int(over_K.sum())
        if n_over:
            over = alive_K[over_K]
            length_B[over] = t + 1
            stopped_B[over] = stop_K[over_K]
            open_K = open_K & ~over_K
            n_open -= n_over
            if n_open == 0:
                break
            if n_open < _COMPACT_BELOW * len(open_K):
                kept_K = open_K.nonzero()[:, 0]
                alive_K, token_K = alive_K[kept_K], token_K[kept_K]
                open_K = open_K[kept_K]
                sampling = sampling.select(kept_K)
                streams.select(kept_K)
                decoder.select(kept_K)
                shortest = int(limit_B[alive_K].min())
        if between is not None:
            between(t + 1)
        logits_BV = decoder.step(token_K)

    lengths, stopped = length_B.tolist(), stopped_B.tolist()
    tokens, logps = token_TB.T.tolist(), logp_TB.T.tolist()
    return [
        Sampled(tuple(tokens[b][:n]), tuple(logps[b][:n]), "stop" if stopped[b] else "length")
        for b, n in enumerate(lengths)
    ]


class _Ends:
    """Which rows have just produced an end-of-sequence token or completed a stop string."""

    def __init__(
        self,
        rows: Sequence[RowPlan],
        eos_ids: Sequence[int],
        stop_strings: StopStrings,
        vocabulary: int,
        device: torch.device,
    ) -> None:
        self._rows = rows
        self._stop_strings = stop_strings
        stops = list(dict.fromkeys(row.params.stop for row in rows))
        # one line per distinct set of stop strings: tokens that end a row, and tokens that may
        self._end_UV = torch.zeros(len(stops), vocabulary, dtype=torch.bool)
        self._maybe_UV = torch.zeros(len(stops), vocabulary, dtype=torch.bool)
        for u, strings in enumerate(stops):
            ids = {*eos_ids, *stop_strings.special_ids(strings)}
            self._end_UV[u, [i for i in ids if 0 <= i < vocabulary]] = True
            if strings:
                self._maybe_UV[u] = stop_strings.candidates(strings, vocabulary)
        self._any_strings = any(stops)
        self._end_UV = self._end_UV.to(device)
        self._maybe_UV = self._maybe_UV.to(device)
        self._one_set = len(stops) == 1
        place = {strings: u for u, strings in enumerate(stops)}
        self._set_B = torch.tensor([place[row.params.stop] for row in rows], device=device)

    def reached(self, token_K: Tensor, open_K: Tensor, alive_K: Tensor, token_TB: Tensor) -> Tensor:
        end_K = self._look_up(self._end_UV, token_K, alive_K)
        if self._any_strings:
            maybe_K = self._look_up(self._maybe_UV, token_K, alive_K) & open_K & ~end_K
            for k in maybe_K.nonzero()[:, 0].tolist():
                b = int(alive_K[k])
                strings = self._rows[b].params.stop
                if self._stop_strings.found(strings, _tail_of(token_TB[:, b])):
                    end_K[k] = True
        return end_K

    def _look_up(self, table_UV: Tensor, token_K: Tensor, alive_K: Tensor) -> Tensor:
        if self._one_set:
            return table_UV[0][token_K]
        return table_UV[self._set_B[alive_K], token_K]


def _tail_of(token_T: Tensor) -> Callable[[int], list[int]]:
    def tail(n: int) -> list[int]:
        ids: list[int] = token_T[-min(n, len(token_T)) :].tolist()
        return ids

    return tail


class HuggingFaceDecoder:
    """Any Hugging Face causal LM through its own forward and cache."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self.device = model.device
        self.vocabulary = int(model.get_output_embeddings().weight.shape[0])  # type: ignore[no-untyped-call]
        self._cache: Any = None
        self._mask_BL = torch.empty(0)
        self._length_B1 = torch.empty(0)

    def prefill(
        self, prompts: Sequence[tuple[int, ...]], counts: Sequence[int], max_new_tokens: int
    ) -> Tensor:
        """See ``Decoder``. Prompts are padded on the left, the pad positions masked."""
        width = max(map(len, prompts))
        ids_SP = torch.tensor(
            [[0] * (width - len(p)) + list(p) for p in prompts], device=self.device
        )
        length_S = torch.tensor([len(p) for p in prompts], device=self.device)
        position_P = torch.arange(width, device=self.device)
        mask_SP = position_P >= width - length_S[:, None]
        output = self._model(
            input_ids=ids_SP,
            attention_mask=mask_SP.long(),
            position_ids=(position_P - (width - length_S)[:, None]).clamp(min=0),
            use_cache=True,
            logits_to_keep=1,
        )
        prompt_B = torch.repeat_interleave(
            torch.arange(len(prompts)), torch.tensor(list(counts))
        ).to(self.device)
        self._cache = getattr(output, "past_key_values", None)
        try:
            self._cache.batch_select_indices(prompt_B)
        except AttributeError as error:
            raise MachineError(
                f"the transformers engine needs a key-value cache whose rows can be chosen, which "
                f"{type(self._model).__name__} does not have",
                where="engine",
                remedy="choose engine: vllm",
            ) from error
        self._mask_BL = mask_SP[prompt_B].long()
        self._length_B1 = length_S[prompt_B][:, None]
        logits_SV: Tensor = output.logits[:, -1]
        return logits_SV[prompt_B]

    def step(self, token_B: Tensor) -> Tensor:
        """See ``Decoder``."""
        self._mask_BL = torch.nn.functional.pad(self._mask_BL, (0, 1), value=1)
        output = self._model(
            input_ids=token_B[:, None],
            attention_mask=self._mask_BL,
            position_ids=self._length_B1,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._length_B1 = self._length_B1 + 1
        logits_BV: Tensor = output.logits[:, -1]
        return logits_BV

    def renew(self) -> None:
        """Nothing: the model computes with its weights of the moment."""

    def select(self, rows_K: Tensor) -> None:
        """See ``Decoder``."""
        self._cache.batch_select_indices(rows_K)
        self._mask_BL = self._mask_BL[rows_K]
        self._length_B1 = self._length_B1[rows_K]
