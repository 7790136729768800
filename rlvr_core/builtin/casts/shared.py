"""One half-precision copy of what several linear layers are given.

Under autocast each layer casts its own input: queries, keys and values the output of one norm three
times, gate and up that of another twice, and autograd keeps every copy. Results are the same, bit
for bit: gradients are cast to float32 one by one, and added there, as they were.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rlvr_core.api import DataReport


def share_casts(trainer: Any) -> DataReport:
    """The service ``core/shared-casts``: let a policy's layers share the copies of their inputs.

    Layers that are compiled are left alone: casts are part of other kernels there.

    Args:
        trainer: The policy's trainer.

    Returns:
        What ``run.json`` keeps under ``casts``: how many layers.
    """
    found: list[Any] = []
    if trainer.precision.autocast is not None and not trainer.compiled:
        found = [one for one in trainer.model.modules() if type(one) is nn.Linear]
    for layer in found:
        layer.forward = _Sharing(layer)
    return DataReport("casts", {"layers": len(found)}, ())


class _Sharing:
    """Takes the place of a layer's ``forward``; a copy of the layer has one of its own."""

    def __init__(self, layer: nn.Linear) -> None:
        self.layer = layer

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(in_half(x), self.layer.weight, self.layer.bias)


def in_half(x: Tensor) -> Tensor:
    """A float32 tensor in autocast's dtype: the same copy each time, while it is what it was."""
    kind = x.device.type
    if not torch.is_autocast_enabled(kind) or x.dtype != torch.float32:
        return x
    dtype = torch.get_autocast_dtype(kind)
    version, copy = getattr(x, "_in_half", (None, None))
    if copy is None or version != x._version or copy.dtype != dtype:
        copy = x.detach().to(dtype)
        x._in_half = x._version, copy  # type: ignore[attr-defined]
    shared: Tensor = _Copied.apply(x, copy)  # type: ignore[no-untyped-call]
    return shared


class _Copied(torch.autograd.Function):
    """A copy that was made already, with the gradient of a cast."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, copy: Tensor) -> Tensor:
        return copy.view_as(copy)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.float(), None
