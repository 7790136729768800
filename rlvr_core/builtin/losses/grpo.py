"""GRPO: clipped surrogate, every completion counts the same."""

from __future__ import annotations

from torch import Tensor

from rlvr_core.algorithm.policy import ClipConfig, ClippedPolicyLoss
from rlvr_core.algorithm.reduce import row_mean
from rlvr_core.api.protocols import Normalizer


class GRPO(ClippedPolicyLoss):
    """Group relative policy optimization, Shao et al. 2024, arXiv:2402.03300."""

    class Config(ClipConfig):
        """Options of GRPO."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)

    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """Mean over rows of the mean over tokens."""
        return row_mean(loss_BT, mask_BT, normalizer)
