"""Reading tensors that may be sharded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def local(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that is in this process, without graph."""
    part: Any = tensor.detach()
    if is_sharded(part):
        part = part.to_local()
    whole: Tensor = part
    return whole


def is_sharded(tensor: Tensor) -> bool:
    """Whether other processes have parts of the tensor."""
    sharding = sys.modules.get("torch.distributed.tensor")  # loaded by whoever shards
    return sharding is not None and isinstance(tensor, sharding.DTensor)


def sampled(tensor: Tensor, n: int) -> Tensor:
    """Return n elements of the local part, evenly spread, in float64; all if it has fewer."""
    flat = local(tensor).reshape(-1)
    return flat[:: max(1, len(flat) // n)][:n].double()
