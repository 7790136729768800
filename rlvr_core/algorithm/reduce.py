"""From per-token losses to a micro-batch's share of the step's loss.

All denominators are those of the whole optimizer step, so the sum over micro-batches does not
depend on how rows were split (T10, T11). They are multiplied out by the number of
processes, because data-parallel training averages gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlvr_core.api import Normalizer


def row_mean(loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
    """Mean over rows of the mean over the row's tokens. A row without loss tokens adds nothing."""
    tokens_B = mask_BT.sum(dim=1).clamp(min=1)
    return _share((_row_sum(loss_BT, mask_BT) / tokens_B).sum(), normalizer.rows, normalizer)


def token_mean(loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
    """Mean over all loss tokens of the step."""
    return _share(_row_sum(loss_BT, mask_BT).sum(), normalizer.tokens, normalizer)


def row_sum(loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
    """Mean over rows of the sum over the row's tokens."""
    return _share(_row_sum(loss_BT, mask_BT).sum(), normalizer.rows, normalizer)


def constant(
    loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer, tokens: int | None = None
) -> Tensor:
    """Mean over rows of the sum over tokens divided by a constant length.

    Args:
        loss_BT: Per-token losses.
        mask_BT: True where they count.
        normalizer: Denominators of the step.
        tokens: The length; None takes the run's cap on completion length.
    """
    length = normalizer.max_completion_tokens if tokens is None else tokens
    return _share(_row_sum(loss_BT, mask_BT).sum(), normalizer.rows * length, normalizer)


def _row_sum(loss_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return torch.where(mask_BT, loss_BT, 0.0).sum(dim=1)


def _share(total: Tensor, denominator: int, normalizer: Normalizer) -> Tensor:
    return total * (normalizer.world_size / max(denominator, 1))
