"""Linear layers with a LoRA adapter on a GPU, in three products and few other kernels.

peft casts a layer's input to float32 and autocast casts it back, for each layer; it scales and adds
the adapter's output in kernels of their own, and rounds each time. Here the adapter is added by
the product that makes it, before one rounding. Dimensions: N tokens, I inputs, O outputs, R rank.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from rlvr_core.api import DataReport
from rlvr_core.builtin.lora.adapter import is_adapted, is_plain_linear


def fused_adapters(trainer: Any) -> DataReport:
    """The service ``core/fused-adapters``: fuse the adapters of a policy.

    Layers that are compiled are left alone.

    Args:
        trainer: The policy's trainer.

    Returns:
        What to say, and what ``run.json`` keeps under ``adapters``: how many layers.
    """
    found = [] if trainer.compiled else [one for one in trainer.model.modules() if is_adapted(one)]
    for layer in found:
        layer.forward = _Fused(layer)
    lines = (f"LoRA's products with little beside them: {len(found)} layers",) if found else ()
    return DataReport("adapters", {"fused": len(found)}, lines)


class _Fused:
    """Takes the place of a layer's ``forward``; a copy of the layer has one of its own."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def __call__(self, x: Tensor, *args: Any, **more: Any) -> Any:
        layer, kind = self.layer, x.device.type
        autocast = torch.is_autocast_enabled(kind)
        dtype = torch.get_autocast_dtype(kind) if autocast else x.dtype
        plain = not (args or more or layer.disable_adapters) and is_plain_linear(layer)
        if plain and len(layer.active_adapters) == 1:
            (name,) = layer.active_adapters
            a_RI, b_OR = layer.lora_A[name].weight, layer.lora_B[name].weight
            weight, bias = layer.base_layer.weight, layer.base_layer.bias
            frozen = not weight.requires_grad and (bias is None or not bias.requires_grad)
            if frozen and weight.dtype == dtype and (autocast or a_RI.dtype == dtype):
                return _Product.apply(x.to(dtype), weight, bias, a_RI, b_OR, layer.scaling[name])  # type: ignore[no-untyped-call]
        return type(layer).forward(layer, x, *args, **more)


class _Product(torch.autograd.Function):
    """``x W^T + bias + scale x A^T B^T``, all in the precision of ``x``."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight_OI: Tensor,
        bias_O: Tensor | None,
        a_RI: Tensor,
        b_OR: Tensor,
        scale: float,
    ) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            own_RI, own_OR = a_RI.to(x.dtype), b_OR.to(x.dtype)
            out = F.linear(x, weight_OI, bias_O)
            x_NI = x.reshape(-1, x.shape[-1])
            low_NR = x_NI @ own_RI.T
            out.view(-1, out.shape[-1]).addmm_(low_NR, own_OR.T, alpha=scale)
        ctx.save_for_backward(x_NI, weight_OI, own_RI, own_OR, low_NR)
        ctx.scale, ctx.shape, ctx.dtypes = scale, x.shape, (a_RI.dtype, b_OR.dtype)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x_NI, weight_OI, a_RI, b_OR, low_NR = ctx.saved_tensors
        needs_x, _, _, needs_a, needs_b, _ = ctx.needs_input_grad
        grad_x = grad_a_RI = grad_b_OR = None
        with torch.autocast(grad.device.type, enabled=False):
            grad_NO = grad.reshape(-1, grad.shape[-1])
            grad_NR = torch.addmm(low_NR, grad_NO, b_OR, beta=0, alpha=ctx.scale)
            if needs_b:
                out = torch.addmm(b_OR, grad_NO.T, low_NR, beta=0, alpha=ctx.scale)
                grad_b_OR = out.to(ctx.dtypes[1])
            if needs_a:
                grad_a_RI = (grad_NR.T @ x_NI).to(ctx.dtypes[0])
            if needs_x:
                grad_x = (grad_NO @ weight_OI).addmm_(grad_NR, a_RI).view(ctx.shape)
        return grad_x, None, None, grad_a_RI, grad_b_OR, None
