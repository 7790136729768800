"""Drawing one token a row, each row from its own stream of random numbers.

A row's numbers depend on its seed and the position alone, so what else is in the batch cannot
change them, and the global generators are never touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlvr_core.api import RunError, SamplingParams

_GAMMA = 0x9E3779B97F4A7C15
_BLOCK = 64


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


class RandomStreams:
    """The rows' streams, computed a block of positions at a time."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self._seeds = list(seeds)
        self._device = device
        self._block_TB = torch.empty(0)
        self._start = 0

    def at(self, position: int) -> Tensor:
        """Each row's number at a position; (B,) float64."""
        offset = position - self._start
        if not 0 <= offset < len(self._block_TB):
            self._start, offset = position, 0
            self._block_TB = uniforms(self._seeds, position, _BLOCK).to(self._device)
        return self._block_TB[offset]

    def select(self, rows_K: Tensor) -> None:
        """Keep only these rows."""
        self._seeds = [self._seeds[row] for row in rows_K.tolist()]
        if len(self._block_TB):
            self._block_TB = self._block_TB[:, rows_K]


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
        """The same for some of the rows."""
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
    """Set to -inf, in place, what top-k and then top-p take out."""
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
