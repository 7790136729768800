"""Rotary positions of queries and keys in three kernels each, where a model has the usual ones.

transformers' own take five, seven more for the gradient, and round thrice in half precision; these
round once. Whether a model's function is the usual one is not known by its name: it is tried,
output and gradients, with random numbers. Dimensions: B rows, h heads, N tokens, D head dimension.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rlvr_core.api import DataReport

_NAME = "apply_rotary_pos_emb"
_SIGNATURE = ["q", "k", "cos", "sin", "unsqueeze_dim"]
_CLOSE = 1e-5


def fused_rotary(trainer: Any) -> DataReport:
    """The service ``core/fused-rotary``: fuse rotary positions of all models of a trainer.

    Args:
        trainer: The policy's trainer.

    Returns:
        What ``run.json`` keeps under ``rotary``: transformers' modules whose function is taken.
    """
    reference = trainer.reference and trainer.reference.own_model
    models = [trainer.model, reference, *trainer.objective.teachers]
    fused = {name for model in models if model is not None for name in fuse_rotary(model)}
    return DataReport("rotary", {"fused": sorted(fused)}, ())


def fuse_rotary(model: nn.Module) -> set[str]:
    """Let the rotary positions of a model's kind be computed as here, on a GPU.

    Returns:
        Names of the modules of its code that are.
    """
    names = {type(module).__module__ for module in model.modules()}
    return {name for name in names if _fused_in(sys.modules[name])}


def _fused_in(module: ModuleType) -> bool:
    own = vars(module).get(_NAME)
    if own is None or isinstance(own, _Fused):
        return own is not None
    if not is_usual(own):
        return False
    setattr(module, _NAME, _Fused(own))
    return True


class _Fused:
    """Takes the place of a model's function; whatever is not as usual is left to that."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def __call__(
        self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **more: Any
    ) -> Any:
        alike = len({one.dtype for one in (q, k, cos, sin)}) == 1
        whole = q.shape[-1] == k.shape[-1] == cos.shape[-1] == sin.shape[-1]
        if args or more or not (alike and whole) or not q.is_cuda or torch.compiler.is_compiling():
            return self.own(q, k, cos, sin, *args, **more)
        return rotated(q, k, cos, sin)


def rotated(
    q_BhND: Tensor, k_BhND: Tensor, cos_BND: Tensor, sin_BND: Tensor
) -> tuple[Tensor, Tensor]:
    """Queries and keys, turned by their positions."""
    turn = cos_BND.unsqueeze(1), sin_BND.unsqueeze(1)
    q_BhND, k_BhND = (_Rotated.apply(x, *turn) for x in (q_BhND, k_BhND))  # type: ignore[no-untyped-call]
    return q_BhND, k_BhND


class _Rotated(torch.autograd.Function):
    """``(x1 cos1 - x2 sin1, x2 cos2 + x1 sin2)`` of the two halves of ``x``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        half = x.shape[-1] // 2
        out = x * cos
        out[..., :half].addcmul_(x[..., half:], sin[..., :half], value=-1)
        out[..., half:].addcmul_(x[..., :half], sin[..., half:])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        half = grad.shape[-1] // 2
        out = grad * cos
        out[..., :half].addcmul_(grad[..., half:], sin[..., half:])
        out[..., half:].addcmul_(grad[..., :half], sin[..., :half], value=-1)
        return out, None, None


def is_usual(own: Any) -> bool:
    """Whether a function gives the usual rotation and its gradients."""
    if list(inspect.signature(own).parameters) != _SIGNATURE:
        return False
    draw = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, h, 3, 8, generator=draw).requires_grad_() for h in (4, 2))
    cos, sin = (torch.randn(2, 3, 8, generator=draw) for _ in range(2))
    found = []
    try:
        with torch.enable_grad():
            for function in (own, rotated):
                outs = function(q, k, cos, sin)
                along = [
                    torch.cos(torch.arange(1.0 + out.numel())[1:]).view_as(out) for out in outs
                ]
                found.append([*outs, *torch.autograd.grad(outs, (q, k), along)])
    except Exception:  # a model's own code may fail in any way on what it is not made for
        return False
    pairs = zip(*found, strict=True)
    return all(a.shape == b.shape and bool(((a - b).abs() <= _CLOSE).all()) for a, b in pairs)
