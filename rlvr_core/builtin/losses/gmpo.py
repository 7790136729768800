"""GMPO: the geometric mean of a completion's clipped ratios."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from rlvr_core.api import Normalizer
from rlvr_core.api.services import (
    PolicyConfig,
    PolicyLoss,
    PolicyTerms,
    Tally,
    exp_linear,
    row_mean,
    row_mean_log_ratio,
)


class GMPO(PolicyLoss):
    """Geometric-mean policy optimization, Zhao et al. 2025, arXiv:2507.20673.

    A single wild ratio moves a geometric mean little, so the range of each can be wide.
    """

    whole_rows = True

    class Config(PolicyConfig):
        """Options of GMPO."""

        clip_low: Annotated[float, Field(gt=0)] = 0.4
        """A token's log-ratio counts down to ``-clip_low`` where the advantage is negative."""
        clip_high: Annotated[float, Field(gt=0)] = 0.4
        """A token's log-ratio counts up to ``clip_high`` where the advantage is positive."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._low, self._high = -config.clip_low, config.clip_high

    def surrogate(self, terms: PolicyTerms, tally: Tally) -> Tensor:
        """-A exp(mean of the clipped log-ratios), the same for every token of the row."""
        x_BT, advantage_B1 = terms.log_ratio_BT, terms.advantage_B1
        good_B1 = advantage_B1 > 0
        tally.mean("clip_fraction/low", ((advantage_B1 < 0) & (x_BT < self._low)).to(x_BT))
        tally.mean("clip_fraction/high", (good_B1 & (x_BT > self._high)).to(x_BT))
        clipped_BT = torch.where(good_B1, x_BT.clamp(max=self._high), x_BT.clamp(min=self._low))
        clipped_BT = torch.where(terms.entropy_mask_BT, clipped_BT, 0.0)
        mean_B1 = row_mean_log_ratio(clipped_BT, terms.entropy_mask_BT)
        # left-out tokens do not dilute a mean that was not taken over them
        chosen_B1 = terms.entropy_mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
        whole_B1 = terms.mask_BT.sum(dim=1, keepdim=True) / chosen_B1
        return (-advantage_B1 * whole_B1 * exp_linear(mean_B1)).expand_as(x_BT)

    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """Mean over rows of the mean over tokens."""
        return row_mean(loss_BT, mask_BT, normalizer)
