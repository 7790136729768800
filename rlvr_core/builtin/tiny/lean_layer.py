"""One decoder layer of a lean model with its backward pass written out.

Prompt and completion tokens of a micro-batch go through a layer as one packed list; only
attention tells them apart (``JoinedMask``).

Dimensions: N tokens (first the prompts', then the completions'), H hidden size, h heads, D head
dimension, I MLP size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rlvr_core.builtin.tiny.lean import rotate, unit

if TYPE_CHECKING:
    from rlvr_core.api.services import JoinedMask

_MLP_TOKENS = 1024
"""Tokens of the MLP worked on at once: their activations stay in cache."""


def _unit_backward(grad: Tensor, normed: Tensor, length: Tensor) -> Tensor:
    """Gradient of ``unit``; overwrites ``grad``."""
    along = torch.linalg.vecdot(grad, normed)[..., None]
    return grad.addcmul_(normed, along, value=-1).div_(length)


class LeanLayer(torch.autograd.Function):
    """A decoder layer: hidden states of packed tokens in and out, (N, H)."""

    @staticmethod
    def forward(
        ctx: Any,
        x_NH: Tensor,
        qkv_QH: Tensor,
        qkv_bias_Q: Tensor | None,
        qk_norm_hD: Tensor | None,
        out_HA: Tensor,
        gate_up_IH: Tensor,
        down_HI: Tensor,
        rotation_N1d: Tensor,
        attention: JoinedMask,
        kv_heads: int,
        head_dim: int,
        eps: float,
    ) -> Tensor:
        """See the module; weights as in ``LayerWeights``."""
        h_NH, length_N1 = unit(x_NH, eps)
        qkv_NhD = F.linear(h_NH, qkv_QH, qkv_bias_Q).view(len(x_NH), -1, head_dim)
        rotated = qkv_NhD.shape[1] - kv_heads
        qk_NhD, v_NhD = qkv_NhD[:, :rotated], qkv_NhD[:, rotated:]
        normed_NhD = qk_length_Nh1 = None
        if qk_norm_hD is not None:
            normed_NhD, qk_length_Nh1 = unit(qk_NhD, eps)
            qk_NhD = normed_NhD * qk_norm_hD
        qk_NhD = rotate(qk_NhD, rotation_N1d)
        q_NhD, k_NhD = qk_NhD[:, : rotated - kv_heads], qk_NhD[:, rotated - kv_heads :]
        a_NhD, prompt_lse, lse = attention.forward(q_NhD, k_NhD, v_NhD, head_dim**-0.5)
        middle_NH = torch.addmm(x_NH, a_NhD.flatten(1), out_HA.t())
        y_NH = torch.empty_like(middle_NH)
        gate_up_NI = middle_NH.new_empty(len(x_NH), len(gate_up_IH))
        for part in _parts(len(x_NH)):
            torch.mm(unit(middle_NH[part], eps)[0], gate_up_IH.t(), out=gate_up_NI[part])
            gate, up = gate_up_NI[part].chunk(2, dim=1)
            torch.addmm(middle_NH[part], F.silu(gate).mul_(up), down_HI.t(), out=y_NH[part])
        ctx.save_for_backward(
            x_NH, length_N1, qk_length_Nh1, normed_NhD, q_NhD, k_NhD, v_NhD, a_NhD, prompt_lse,
            lse, middle_NH, gate_up_NI, qkv_QH, qkv_bias_Q, qk_norm_hD, out_HA, gate_up_IH,
            down_HI, rotation_N1d,
        )  # fmt: skip
        ctx.attention, ctx.eps = attention, eps
        return y_NH

    @staticmethod
    def backward(ctx: Any, grad_NH: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden states and weights."""
        (
            x_NH, length_N1, qk_length_Nh1, normed_NhD, q_NhD, k_NhD, v_NhD, a_NhD, prompt_lse,
            lse, middle_NH, gate_up_NI, qkv_QH, qkv_bias_Q, qk_norm_hD, out_HA, gate_up_IH,
            down_HI, rotation_N1d,
        ) = ctx.saved_tensors  # fmt: skip
        grad_middle_NH, d_gate_up, d_down = _mlp_backward(
            grad_NH, middle_NH, gate_up_NI, gate_up_IH, down_HI, ctx.eps
        )
        d_out = grad_middle_NH.t() @ a_NhD.flatten(1)
        grad_a_NhD = (grad_middle_NH @ out_HA).view_as(a_NhD)
        heads, scale = (q_NhD, k_NhD, v_NhD), q_NhD.shape[-1] ** -0.5
        d_q, d_k, d_v = ctx.attention.backward(grad_a_NhD, heads, a_NhD, prompt_lse, lse, scale)
        grad_qk_NhD = rotate(torch.cat((d_q, d_k), dim=1), rotation_N1d.conj())
        d_norm = None
        if qk_norm_hD is not None:
            d_norm = (grad_qk_NhD * normed_NhD).sum(0)
            grad_qk_NhD = _unit_backward(grad_qk_NhD * qk_norm_hD, normed_NhD, qk_length_Nh1)
        grad_qkv_NQ = torch.cat((grad_qk_NhD, d_v), dim=1).flatten(1)
        h_NH = x_NH / length_N1
        d_qkv = grad_qkv_NQ.t() @ h_NH
        d_bias = None if qkv_bias_Q is None else grad_qkv_NQ.sum(0)
        grad_x_NH = _unit_backward(grad_qkv_NQ @ qkv_QH, h_NH, length_N1).add_(grad_middle_NH)
        return (
            grad_x_NH, d_qkv, d_bias, d_norm, d_out, d_gate_up, d_down, None, None, None, None,
            None,
        )  # fmt: skip


def _mlp_backward(
    grad_NH: Tensor,
    middle_NH: Tensor,
    gate_up_NI: Tensor,
    gate_up_IH: Tensor,
    down_HI: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the MLP's input, with the residual's, and of its two weights."""
    grad_middle_NH = torch.empty_like(middle_NH)
    d_gate_up, d_down = torch.zeros_like(gate_up_IH), torch.zeros_like(down_HI)
    for part in _parts(len(grad_NH)):
        grad = grad_NH[part]
        h, length = unit(middle_NH[part], eps)
        gate, up = gate_up_NI[part].chunk(2, dim=1)
        silu = F.silu(gate)
        d_down.addmm_(grad.t(), silu * up)
        grad_act = grad @ down_HI
        d_both = torch.empty_like(gate_up_NI[part])
        d_gate, d_up = d_both.chunk(2, dim=1)
        torch.mul(grad_act, silu, out=d_up)
        torch.ops.aten.silu_backward(grad_act.mul_(up), gate, grad_input=d_gate)
        d_gate_up.addmm_(d_both.t(), h)
        torch.add(grad, _unit_backward(d_both @ gate_up_IH, h, length), out=grad_middle_NH[part])
    return grad_middle_NH, d_gate_up, d_down


def _parts(tokens: int) -> list[slice]:
    return [slice(start, start + _MLP_TOKENS) for start in range(0, tokens, _MLP_TOKENS)]
