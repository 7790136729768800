"""Batched decoding: one token a row, the loop around it, and any Hugging Face causal LM in it.

Each row draws from its own stream of random numbers, which depend on its seed and the position
alone: what else is in the batch cannot change them, and the global generators are never touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from rlvr_core.api import MachineError, RunError, SamplingParams
from rlvr_core.engines.sampling import StopStrings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_COMPACT_BELOW = 0.85
"""Share of rows still alive below which finished ones are taken out of the batch: moving the
cache costs about as much as a step."""
_GAMMA = 0x9E3779B97F4A7C15


# -- drawing one token a row ---------------------------------------------------------------------


def _mix(x: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit words."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


def uniforms(seeds: Sequence[int], start: int, count: int) -> Tensor:
    """Numbers ``start`` to ``start + count`` of each seed's stream, uniform in [0, 1 - 2^-52].

    Args:
        seeds: One per row, taken modulo 2^64.
        start: First position.
        count: Positions.

    Returns:
        (count, len(seeds)) float64: SplitMix64 started at a scrambled seed, top 52 bits.
    """
    seed_B = np.array([seed % 2**64 for seed in seeds], dtype=np.uint64)
    step_T = np.arange(start + 1, start + count + 1, dtype=np.uint64) * np.uint64(_GAMMA)
    # scrambling first keeps seeds that differ by a multiple of the increment apart
    words_TB = _mix(_mix(seed_B ^ np.uint64(_GAMMA))[None, :] + step_T[:, None])
    return torch.from_numpy((words_TB >> np.uint64(12)).astype(np.float64) * 2.0**-52)


@dataclass(slots=True)
class RowSampling:
    """How each row of a batch is sampled; None where no row needs it.

    Attributes:
        temperature_B1: 1 for greedy rows, whose log-probs are at temperature 1.
        greedy_B: Rows that take the likeliest token.
        top_k_B1: Vocabulary size for rows without it.
        top_p_B1: 1 for rows without it.
    """

    temperature_B1: Tensor | None
    greedy_B: Tensor | None
    top_k_B1: Tensor | None
    top_p_B1: Tensor | None

    @classmethod
    def of(
        cls, params: Sequence[SamplingParams], vocabulary: int, device: torch.device
    ) -> RowSampling:
        """Gather the parameters of rows."""
        greedy = [p.temperature == 0 for p in params]
        temperature = [p.temperature or 1.0 for p in params]
        top_k = [p.top_k if 0 < p.top_k < vocabulary else vocabulary for p in params]
        # a greedy choice is never filtered: its log-prob is of the unfiltered distribution
        top_k = [vocabulary if g else k for k, g in zip(top_k, greedy, strict=True)]
        top_p = [1.0 if g else p.top_p for p, g in zip(params, greedy, strict=True)]

        def column(values: Sequence[float], neutral: float) -> Tensor | None:
            if all(value == neutral for value in values):
                return None
            return torch.tensor(values, device=device)[:, None]

        return cls(
            temperature_B1=column(temperature, 1.0),
            greedy_B=torch.tensor(greedy, device=device) if any(greedy) else None,
            top_k_B1=column(top_k, vocabulary),
            top_p_B1=column(top_p, 1.0),
        )

    def select(self, rows_K: Tensor) -> RowSampling:
        """Return the parameters of these rows."""
        return RowSampling(*(v if v is None else v[rows_K] for v in self._fields()))

    def _fields(self) -> tuple[Tensor | None, ...]:
        return self.temperature_B1, self.greedy_B, self.top_k_B1, self.top_p_B1


def sample(logits_BV: Tensor, rows: RowSampling, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Draw a token a row by inverting the cumulative distribution.

    Args:
        logits_BV: Raw logits; overwritten.
        rows: How each row is sampled.
        uniform_B: One number in [0, 1 - 2^-52] a row, float64.

    Returns:
        Tokens (B,) int64 and their log-probs (B,) float32 under the distribution they were drawn
        from: temperature, then top-k, then top-p, renormalised. Greedy rows give the log-prob at
        temperature 1.

    Raises:
        RunError: If a row has no finite logit, or one that is NaN or +infinity.
    """
    logits_BV = logits_BV if logits_BV.dtype == torch.float64 else logits_BV.float()
    if rows.temperature_B1 is not None:
        logits_BV.div_(rows.temperature_B1)
    if rows.top_k_B1 is not None or rows.top_p_B1 is not None:
        _filter(logits_BV, rows.top_k_B1, rows.top_p_B1)
    weight_BV = logits_BV.sub_(logits_BV.amax(-1, keepdim=True)).exp()
    # float64: with float32 sums, tokens rarer than 6e-8 would be lost or favoured
    cumulative_BV = weight_BV.cumsum(-1, dtype=torch.float64)
    total_B1 = cumulative_BV[:, -1:]
    if not bool(total_B1.isfinite().all()):
        raise RunError(
            "the model's logits are not finite: it has diverged",
            remedy="go back to an earlier checkpoint, with a lower train.lr",
        )
    # a uniform of 52 bits times the total always rounds to less than the total, and the first
    # entry above the mark never has weight zero: no impossible token can come out
    token_B1 = torch.searchsorted(cumulative_BV, uniform_B[:, None] * total_B1, right=True)
    if rows.greedy_B is not None:
        token_B1 = torch.where(rows.greedy_B[:, None], logits_BV.argmax(-1, keepdim=True), token_B1)
    logp_B1 = logits_BV.gather(-1, token_B1) - total_B1.log()
    return token_B1[:, 0], logp_B1[:, 0].float()


def _filter(logits_BV: Tensor, top_k_B1: Tensor | None, top_p_B1: Tensor | None) -> None:
    """Set the logits that top-k and then top-p exclude to -inf, in place."""
    sorted_BV, order_BV = logits_BV.sort(stable=True, dim=-1, descending=True)
    if top_k_B1 is not None:
        rank_V = torch.arange(logits_BV.shape[-1], device=logits_BV.device)
        sorted_BV = sorted_BV.masked_fill(rank_V >= top_k_B1, -torch.inf)
    if top_p_B1 is not None:
        p_BV = sorted_BV.double().softmax(-1)
        # a token stays while the mass above it is short of top_p: the likeliest always does
        above_BV = p_BV.cumsum(-1) - p_BV
        dropped_BV = (above_BV >= top_p_B1) & (top_p_B1 < 1.0)
        dropped_BV[:, 0] = False
        sorted_BV = sorted_BV.masked_fill(dropped_BV, -torch.inf)
    logits_BV.scatter_(-1, order_BV, sorted_BV)


# -- the loop ------------------------------------------------------------------------------------


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
    decoder: HuggingFaceDecoder,
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
        between: Called with the position of each token but the first, before it is computed; what
            it raises ends the loop.

    Returns:
        One result a row, prompt by prompt.

    Raises:
        RunError: If the deadline passed.
    """
    rows = [plan for group in plans for plan in group]
    device = decoder.device
    limit_B = torch.tensor([row.limit for row in rows], device=device)
    most = int(limit_B.max())
    logits_BV = decoder.prefill(prompts, [len(group) for group in plans])
    B, V = logits_BV.shape
    token_TB = torch.zeros(most, B, dtype=torch.long, device=device)
    logp_TB = torch.zeros(most, B, device=device)
    length_B = limit_B.clone()
    stopped_B = torch.zeros(B, dtype=torch.bool, device=device)
    ends = _Ends(rows, eos_ids, stop_strings, V, device)
    sampling = RowSampling.of([row.params for row in rows], V, device)
    uniform_TB = uniforms([row.seed for row in rows], 0, most).to(device)
    alive_K = torch.arange(B, device=device)  # rows in the batch
    open_K = torch.ones(B, dtype=torch.bool, device=device)  # those of them still being sampled
    n_open = B
    shortest = int(limit_B.min())

    for t in range(most):
        if deadline is not None and time.monotonic() > deadline:
            raise RunError(f"generation passed its deadline after {t} tokens, {n_open} rows open")
        token_K, logp_K = sample(logits_BV, sampling, uniform_TB[t, alive_K])
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
    """Finds rows that have just produced an end-of-sequence token or completed a stop string."""

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
        place = {strings: u for u, strings in enumerate(stops)}
        self._set_B = torch.tensor([place[row.params.stop] for row in rows], device=device)

    def reached(self, token_K: Tensor, open_K: Tensor, alive_K: Tensor, token_TB: Tensor) -> Tensor:
        set_K = self._set_B[alive_K]
        end_K = self._end_UV[set_K, token_K]
        if self._any_strings:
            maybe_K = self._maybe_UV[set_K, token_K] & open_K & ~end_K
            for k in maybe_K.nonzero()[:, 0].tolist():
                b = int(alive_K[k])
                strings = self._rows[b].params.stop
                if self._stop_strings.found(strings, token_TB[:, b]):
                    end_K[k] = True
        return end_K


def left_padded(
    rows: Sequence[tuple[int, ...]], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return token ids, attention mask and positions of rows padded on the left; (R, L) each."""
    width = max(map(len, rows))
    ids_RL = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows], device=device)
    pad_R1 = torch.tensor([width - len(row) for row in rows], device=device)[:, None]
    position_RL = torch.arange(width, device=device) - pad_R1
    return ids_RL, (position_RL >= 0).long(), position_RL.clamp(min=0)


class HuggingFaceDecoder:
    """Decodes with any Hugging Face causal LM, by its own forward and cache."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self.device = model.device
        self._cache: Any = None
        self._mask_BL = torch.empty(0)
        self._length_B1 = torch.empty(0)

    def prefill(self, prompts: Sequence[tuple[int, ...]], counts: Sequence[int]) -> Tensor:
        """Run each prompt once and give it ``counts`` rows of cache.

        Returns:
            (B, V) logits of each row's first token; the caller may overwrite them.
        """
        ids_SP, mask_SP, position_SP = left_padded(prompts, self.device)
        output = self._model(
            input_ids=ids_SP,
            attention_mask=mask_SP,
            position_ids=position_SP,
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
        self._mask_BL = mask_SP[prompt_B]
        self._length_B1 = self._mask_BL.sum(-1, keepdim=True)
        logits_SV: Tensor = output.logits[:, -1]
        return logits_SV[prompt_B]

    def step(self, token_B: Tensor) -> Tensor:
        """Append a token to every row; (B, V) logits of the next."""
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

    def select(self, rows_K: Tensor) -> None:
        """Keep only these rows."""
        self._cache.batch_select_indices(rows_K)
        self._mask_BL = self._mask_BL[rows_K]
        self._length_B1 = self._length_B1[rows_K]
