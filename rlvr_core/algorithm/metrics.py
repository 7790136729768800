"""Metrics of a loss: gathered per micro-batch, finished once the whole step is summed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

_WEIGHT = "mismatch/weight"
_WEIGHT_SQUARE = "mismatch/weight_square"


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums and maxima over the loss tokens of one micro-batch.

    Which names it holds depends on the loss's options only, never on the data, so that every rank
    has the same ones to reduce. Without loss tokens a sum is (0, 0) and a maximum -inf, which
    change nothing where they are added up.
    """

    mask_BT: Tensor
    sums: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    maxima: dict[str, Tensor] = field(default_factory=dict)

    def mean(self, name: str, value_BT: Tensor) -> None:
        """Record the mean of a per-token value."""
        total = torch.where(self.mask_BT, value_BT.detach(), 0.0).sum()
        self.sums[name] = (total, self.mask_BT.sum())

    def max(self, name: str, value_BT: Tensor) -> None:
        """Record the largest per-token value."""
        value_BT = torch.where(self.mask_BT, value_BT.detach(), -torch.inf)
        self.maxima[name] = value_BT.max() if value_BT.numel() else value_BT.new_tensor(-torch.inf)

    def weights(self, weight_BT: Tensor) -> None:
        """Record what the effective sample size of importance weights is made of."""
        self.mean(_WEIGHT, weight_BT)
        self.mean(_WEIGHT_SQUARE, weight_BT.square())


def finish(
    sums: Mapping[str, tuple[float, float]], maxima: Mapping[str, float]
) -> dict[str, float]:
    """The step's metrics, from totals over all its micro-batches and ranks.

    The mean square of the importance weights becomes ``mismatch/ess``, the effective sample size
    as a share of the tokens: (sum w)^2 / (n sum w^2) is no sum over micro-batches itself.

    Args:
        sums: Name to total (sum, count).
        maxima: Name to maximum.

    Returns:
        Name to value; what had nothing to count is absent.
    """
    done = {name: total / count for name, (total, count) in sums.items() if count}
    done |= {name: value for name, value in maxima.items() if value != -math.inf}
    square = done.pop(_WEIGHT_SQUARE, None)
    if square is not None:
        done["mismatch/ess"] = done[_WEIGHT] ** 2 / square if square else 0.0
    return done
