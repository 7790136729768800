"""Where the engine truncates its distribution: at the rank and the mass that the config says.

Trainer and engine round differently, so a token at the edge may be kept by one alone. What tells is
how often the last token inside and the first one outside come, where they are clearly apart from
the other side of the edge: an engine that keeps one token more samples the first one outside as
often as its probability says, and one that rounds does so rarely.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api.services import ParitySection

GAP, EXCESS, NEXT, NEXT_GAP, LAST, LAST_GAP = range(7, 13)
"""Columns of ``edges`` in ``TokenScores``."""

NATS = {torch.float32: 0.01, torch.float16: 0.03, torch.bfloat16: 0.12}
"""Tokens that are farther apart are clearly apart, at a temperature of 1."""

MASS = {torch.float32: 0.005, torch.float16: 0.02, torch.bfloat16: 0.05}
"""The same of the mass of the likeliest tokens."""

ROUNDED = 0.35
"""Share of the samples beyond an edge, or missing before it, that may be rounding."""

DEVIATIONS = 3.0
"""Standard deviations beyond that share."""

LEAST, SHARE = 3, 2e-3
"""So many tokens beyond top-p, and more than this share of all, are no rounding."""


def edges(
    logp_nV: Tensor, target_n: Tensor, *, top_k: int, top_p: float, margin: float
) -> list[Tensor]:
    """Return what ``Truncation`` counts by, a column each.

    Args:
        logp_nV: Log-probs before any truncation.
        target_n: The sampled tokens.
        top_k: Likeliest tokens that are kept; 0 keeps all.
        top_p: Least mass of the likeliest tokens that are kept.
        margin: Tokens that are fewer nats apart may come in either order.

    Returns:
        Nats of the sampled token below the last of the top k; mass of the clearly likelier ones
        among these in excess of ``top_p``; probability of the first token outside the top k, if it
        were kept too, and its nats below the last; probability of the last one, and its nats below
        the one before it. Without top-k what is of it is 0, or below 0.
    """
    own_n1 = logp_nV.gather(-1, target_n[:, None])
    nothing_n = torch.zeros_like(own_n1[:, 0])
    gap_n, columns, edge_n1 = nothing_n - 1, [nothing_n] * 4, torch.full_like(own_n1, -torch.inf)
    if 0 < top_k < logp_nV.shape[-1]:
        top_nK = logp_nV.topk(top_k + 1, dim=-1).values
        edge_n1 = top_nK[:, -2:-1]
        gap_n = (edge_n1 - own_n1)[:, 0].clamp(min=-1.0)
        before_n = top_nK[:, -3] if top_k > 1 else torch.full_like(nothing_n, torch.inf)
        columns = [
            top_nK.softmax(-1)[:, -1],
            top_nK[:, -2] - top_nK[:, -1],
            top_nK[:, :-1].softmax(-1)[:, -1],
            (before_n - top_nK[:, -2]).clamp(max=1e4),
        ]
    p_nV = logp_nV.masked_fill(logp_nV < edge_n1, -torch.inf).softmax(-1)
    ahead_n = (p_nV * (logp_nV > own_n1 + margin)).sum(-1)
    return [gap_n, ahead_n - top_p if top_p < 1 else nothing_n - 1, *columns]


def apart(compute: torch.dtype, temperature: float) -> float:
    """Return by how many nats two tokens are clearly apart."""
    return NATS[compute] / min(1.0, temperature)


class Truncation:
    """Counts sampled tokens on both sides of the edges.

    Args:
        top_k: Of their sampling.
        top_p: Of their sampling.
        temperature: Of their sampling.
        parity: Limits from the config; whoever accepts a larger difference of log-probs accepts it
            here.
        compute: Precision of the trainer's forward pass.
    """

    def __init__(
        self,
        top_k: int,
        top_p: float,
        temperature: float,
        *,
        parity: ParitySection | bool,
        compute: torch.dtype,
    ) -> None:
        self._top_k, self._top_p = top_k, top_p
        cool = 1 / min(1.0, temperature)
        accepted = 0.0 if isinstance(parity, bool) else parity.max or 0.0
        self._nats = max(apart(compute, temperature), accepted)
        self._mass = max(MASS[compute] * cool, accepted / 4)
        self._tokens = self._by_p = self._outside = self._last = 0
        self._due_outside = self._due_last = 0.0

    def wrong(self, scores_NK: Tensor) -> str:
        """Count some tokens; return what is wrong with all so far, empty if nothing is."""
        gap_N, excess_N, next_N, next_gap_N, last_N, last_gap_N = scores_NK[:, GAP:][:, :6].unbind(
            1
        )
        self._tokens += len(gap_N)
        self._by_p += int(((excess_N > self._mass) & (gap_N <= 0)).sum())
        self._outside += int((gap_N > self._nats).sum())
        self._due_outside += float(next_N[next_gap_N > self._nats].sum())
        clear_N = last_gap_N > self._nats
        if self._top_p >= 1:  # which may leave out the last ones of the top k
            self._last += int((clear_N & (gap_N == 0)).sum())
            self._due_last += float(last_N[clear_N].sum())
        if self._by_p >= LEAST and self._by_p > SHARE * self._tokens:
            return (
                f"{self._by_p} of {self._tokens} sampled tokens are beyond the likeliest ones that "
                f"top_p {self._top_p:g} keeps, by a mass of {self._mass:g} or more"
            )
        rounded = ROUNDED * self._due_outside
        if self._outside > rounded + DEVIATIONS * math.sqrt(rounded) + LEAST:
            return (
                f"{self._outside} of {self._tokens} sampled tokens are left out by top_k "
                f"{self._top_k}, and if it were one more {self._due_outside:.0f} would come"
            )
        kept = (1 - ROUNDED) * self._due_last
        if self._last < kept - 2 * DEVIATIONS * math.sqrt(kept):
            return (
                f"the last of the {self._top_k} likeliest tokens came {self._last} times in "
                f"{self._tokens} tokens, and the probabilities make {self._due_last:.0f}"
            )
        return ""
