"""Tensors sharded over processes (FSDP), and whole ones."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """Whether this process holds only a part of the tensor."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """Return the whole tensor. A collective if it is sharded."""
    sharded: Any = tensor
    full: Tensor = sharded.full_tensor() if is_sharded(tensor) else tensor
    return full


def like(value: Tensor, model: Tensor) -> Tensor:
    """Move a whole value to the device of ``model`` and shard it alike, without communication."""
    value = value.to(model.device)
    if not is_sharded(model) or value.shape != model.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = model
    return distribute_tensor(value, sharded.device_mesh, sharded.placements, src_data_rank=None)
