"""TRL's BNPO as an oracle: GRPO averaged over the loss tokens of each micro-batch."""

import torch

from rlvr_core.losses import GRPO, clipped


class BNPO(GRPO):
    """Its gradient depends on how rows are packed into micro-batches (T10)."""

    def __call__(self, batch, normalizer):
        """Mean over the micro-batch's tokens, weighted by its share of the step's rows."""
        policy, mask_BT = self.terms(batch), batch.mask_BT
        loss_BT = policy.corrected(clipped(policy, self.options))
        rows = mask_BT.any(dim=1).sum()
        mean = torch.where(mask_BT, loss_BT, 0.0).sum(dim=1).sum() / mask_BT.sum().clamp(min=1)
        loss = mean * rows * (normalizer.world_size / max(normalizer.rows, 1))
        return policy.output(loss, normalizer)
