"""BNPO: as TRL has it, every micro-batch averaged by itself."""

from __future__ import annotations

from torch import Tensor

from rlvr_core.algorithm.policy import ClipConfig, ClippedPolicyLoss
from rlvr_core.algorithm.reduce import micro_batch_mean
from rlvr_core.api.protocols import Normalizer


class BNPO(ClippedPolicyLoss):
    """GRPO averaged over the loss tokens of each micro-batch, for comparisons with TRL.

    Its gradient depends on how rows are packed into micro-batches (T10). ``dapo`` is what it would
    be without that.
    """

    class Config(ClipConfig):
        """Options of BNPO."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)

    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """Mean over the micro-batch's tokens, weighted by its share of the step's rows."""
        return micro_batch_mean(loss_BT, mask_BT, normalizer)
