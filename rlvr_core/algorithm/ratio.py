"""Probability ratios of two policies, and the clipped surrogate made of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_EXPONENT = 30.0
"""Above it exp is continued by its tangent: exp(30) = 1e13 still has a finite square in float32."""


def log_ratio(logp_BT: Tensor, old_logp_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """``logp - old`` where the mask is set, else 0; whatever a masked position holds, even NaN."""
    return torch.where(mask_BT, logp_BT - old_logp_BT, 0.0)


def row_mean_log_ratio(log_ratio_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(B, 1) mean over the row's loss tokens of log-ratios that are 0 elsewhere.

    Its exp is the geometric mean of the tokens' ratios, the sequence ratio of Zheng et al. 2025,
    arXiv:2507.18071.
    """
    return log_ratio_BT.sum(dim=1, keepdim=True) / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)


def exp_linear(x: Tensor) -> Tensor:
    """exp(x) up to ``MAX_EXPONENT`` and its tangent beyond: never infinite, nor is its gradient.

    A plain exp overflows to inf, and the zero gradient of a clipped token times inf is NaN.
    """
    bounded = x.clamp(max=MAX_EXPONENT)
    return torch.exp(bounded) * (1 + (x - bounded))


@dataclass(frozen=True, slots=True)
class Clipped:
    """A clipped surrogate, to be minimised, and where the clip decided it.

    Attributes:
        loss_BT: Per-token loss.
        low_BT: True where a negative advantage met a ratio below the range.
        high_BT: True where a positive advantage met a ratio above it.
    """

    loss_BT: Tensor
    low_BT: Tensor
    high_BT: Tensor


def clipped_surrogate(
    ratio_BT: Tensor,
    advantage_BT: Tensor,
    *,
    low: float,
    high: float,
    delta: float | None = None,
) -> Clipped:
    """-min(min(r, delta) A, clip(r, 1 - low, 1 + high) A).

    PPO's objective (Schulman et al. 2017, arXiv:1707.06347) with the two sides of the range apart
    (Yu et al. 2025, arXiv:2503.14476) and the bound for negative advantages of two-sided clipping
    (Prime Intellect 2025, arXiv:2505.07291).

    Args:
        ratio_BT: New over old probability, or a sequence ratio broadcast over its row.
        advantage_BT: The advantage of each token.
        low: Width of the range below 1.
        high: Width of the range above 1.
        delta: Largest ratio of the unclipped arm, at least ``1 + high``; it then acts only where
            the advantage is negative. None is off.
    """
    unclipped_BT = ratio_BT if delta is None else ratio_BT.clamp(max=delta)
    clipped_BT = ratio_BT.clamp(1 - low, 1 + high)
    return Clipped(
        loss_BT=-torch.minimum(unclipped_BT * advantage_BT, clipped_BT * advantage_BT),
        low_BT=(advantage_BT < 0) & (ratio_BT < 1 - low),
        high_BT=(advantage_BT > 0) & (ratio_BT > 1 + high),
    )
