"""Dr. GRPO: neither the group's spread nor a completion's length scales its gradient."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from rlvr_core.algorithm.policy import ClipConfig, ClippedPolicyLoss
from rlvr_core.algorithm.reduce import constant
from rlvr_core.api.protocols import AdvantageMode, Normalizer


class DrGRPO(ClippedPolicyLoss):
    """GRPO without its length and difficulty bias, Liu et al. 2025, arXiv:2503.20783.

    Its gradients are smaller than GRPO's by about mean length / ``constant`` and by the rewards'
    spread, so a learning rate that suits GRPO is too low here (T9).
    """

    class Config(ClipConfig):
        """Options of Dr. GRPO."""

        advantage: AdvantageMode = "center"
        """How rewards become advantages."""
        constant: Annotated[int, Field(gt=0)] | None = None
        """Tokens every completion's sum is divided by; null takes the run's cap on completions."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._constant = config.constant

    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """Mean over rows of the sum over tokens divided by a constant."""
        return constant(loss_BT, mask_BT, normalizer, self._constant)
