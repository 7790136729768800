"""CISPO: the ratio weighs a token's gradient and is bounded, but never ends it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from rlvr_core.algorithm.metrics import Tally
from rlvr_core.algorithm.policy import PolicyLoss, PolicyTerms, RatioConfig
from rlvr_core.algorithm.reduce import token_mean
from rlvr_core.api.protocols import Normalizer


class CISPO(PolicyLoss):
    """Clipped importance-sampling policy optimization, MiniMax 2025, arXiv:2506.13585."""

    class Config(RatioConfig):
        """Options of CISPO."""

        cap: Annotated[float, Field(gt=0)] = 5.0
        """Largest ratio that a token's gradient is multiplied by."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._cap = config.cap

    def surrogate(self, terms: PolicyTerms, tally: Tally) -> Tensor:
        """-min(r, cap) A logp, without a gradient through r."""
        weight_BT = terms.ratio_BT.detach()
        tally.mean("clip_fraction/high", (weight_BT > self._cap).to(weight_BT))
        return -weight_BT.clamp(max=self._cap) * terms.advantage_B1 * terms.logp_BT

    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """Mean over all loss tokens of the step."""
        return token_mean(loss_BT, mask_BT, normalizer)
