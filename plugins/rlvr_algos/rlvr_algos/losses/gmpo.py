"""GMPO: the geometric mean of a completion's clipped ratios."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from rlvr_core.algorithm.policy import PolicyConfig, PolicyLoss
from rlvr_core.algorithm.ratio import exp_linear, row_mean_log_ratio
from rlvr_core.algorithm.reduce import row_mean
from rlvr_core.api import LossBatch, LossOutput, Normalizer


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

    options: Config

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Mean over rows of -A exp(mean of the clipped log-ratios), the same for every token."""
        terms = self.terms(batch)
        tally = terms.tally
        low, high = -self.options.clip_low, self.options.clip_high
        x_BT, advantage_B1 = terms.log_ratio_BT, terms.advantage_B1
        good_B1 = advantage_B1 > 0
        tally.mean("clip_fraction/low", ((advantage_B1 < 0) & (x_BT < low)).to(x_BT))
        tally.mean("clip_fraction/high", (good_B1 & (x_BT > high)).to(x_BT))
        clipped_BT = torch.where(good_B1, x_BT.clamp(max=high), x_BT.clamp(min=low))
        clipped_BT = torch.where(terms.entropy_mask_BT, clipped_BT, 0.0)
        mean_B1 = row_mean_log_ratio(clipped_BT, terms.entropy_mask_BT)
        # left-out tokens do not dilute a mean that was not taken over them
        chosen_B1 = terms.entropy_mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
        whole_B1 = terms.mask_BT.sum(dim=1, keepdim=True) / chosen_B1
        surrogate_BT = (-advantage_B1 * whole_B1 * exp_linear(mean_B1)).expand_as(x_BT)
        loss_BT = terms.corrected(surrogate_BT)
        return terms.output(row_mean(loss_BT, batch.mask_BT, normalizer), normalizer)
