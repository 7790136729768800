"""LUSPO: sums over completions, so that long ones are not discounted."""

from __future__ import annotations

from torch import Tensor

from rlvr_core.algorithm.policy import ClipConfig, ClippedPolicyLoss
from rlvr_core.algorithm.reduce import row_sum
from rlvr_core.api.protocols import Normalizer


class LUSPO(ClippedPolicyLoss):
    """Length-unbiased sequence policy optimization, arXiv:2602.05261.

    The paper's setting is ``ratio: sequence``. Its gradients are larger than those of ``grpo`` by
    about the mean length, so a learning rate that suits one does not suit the other (T9).
    """

    class Config(ClipConfig):
        """Options of LUSPO."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)

    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """Mean over rows of the sum over tokens."""
        return row_sum(loss_BT, mask_BT, normalizer)
