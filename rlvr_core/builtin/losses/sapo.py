"""SAPO: a smooth gate on the ratio in the place of a hard clip."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from rlvr_core.algorithm.metrics import Tally
from rlvr_core.algorithm.policy import PolicyLoss, PolicyTerms, RatioConfig
from rlvr_core.algorithm.reduce import row_mean
from rlvr_core.api.protocols import Normalizer


class SAPO(PolicyLoss):
    """Soft adaptive policy optimization, Gao et al. 2025, arXiv:2511.20347."""

    class Config(RatioConfig):
        """Options of SAPO."""

        tau_pos: Annotated[float, Field(gt=0)] = 1.0
        """How fast the gate closes where the advantage is positive."""
        tau_neg: Annotated[float, Field(gt=0)] = 1.05
        """How fast the gate closes where it is not."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._pos, self._neg = config.tau_pos, config.tau_neg

    def surrogate(self, terms: PolicyTerms, tally: Tally) -> Tensor:
        """-A (4 / tau) sigmoid(tau (r - 1)); its gradient is that of -A r where r is 1."""
        # float32 whatever the batch: with 1.05 unrounded, values leave TRL's by 5e-8
        tau_B1 = torch.where(terms.advantage_B1 > 0, self._pos, self._neg)
        open_BT = torch.sigmoid(tau_B1 * (terms.ratio_BT - 1))
        tally.mean("gate/mean", 4 * open_BT * (1 - open_BT))
        return -(open_BT * 4 / tau_B1) * terms.advantage_B1

    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """Mean over rows of the mean over tokens."""
        return row_mean(loss_BT, mask_BT, normalizer)
