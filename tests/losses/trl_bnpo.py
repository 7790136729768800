"""TRL's BNPO as an oracle: GRPO averaged over the loss tokens of each micro-batch."""

import torch

from rlvr_core.algorithm.policy import ClipConfig, ClippedPolicyLoss


class BNPO(ClippedPolicyLoss):
    """Its gradient depends on how rows are packed into micro-batches (T10)."""

    class Config(ClipConfig):
        """Options of BNPO."""

    def __init__(self, config):
        super().__init__(config)

    def reduce(self, loss_BT, mask_BT, normalizer):
        """Mean over the micro-batch's tokens, weighted by its share of the step's rows."""
        rows = mask_BT.any(dim=1).sum()
        mean = torch.where(mask_BT, loss_BT, 0.0).sum(dim=1).sum() / mask_BT.sum().clamp(min=1)
        return mean * rows * (normalizer.world_size / max(normalizer.rows, 1))
