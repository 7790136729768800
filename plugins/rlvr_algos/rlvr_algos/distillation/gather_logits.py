"""Logits of a few tokens out of the vocabulary, and the few most likely ones.

Dimensions: N tokens, K entries of the vocabulary V, H hidden size.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_CHUNK_BYTES = 80 << 20


def gather_logits(
    hidden_NH: Tensor, weight_VH: Tensor, ids_NK: Tensor, bias_V: Tensor | None = None
) -> Tensor:
    """(N, K) logits of some entries, float32 at least; (N, K, H) is never held at once.

    The product is made in autocast's dtype, or that of ``hidden_NH`` without autocast.
    """
    device = hidden_NH.device.type
    dtype = hidden_NH.dtype
    if dtype != torch.float64 and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    with torch.autocast(device, enabled=False):
        logits_NK: Tensor = _GatherLogits.apply(hidden_NH.to(dtype), weight_VH, ids_NK)  # type: ignore[no-untyped-call]
        logits_NK = logits_NK.to(torch.promote_types(dtype, torch.float32))
        return logits_NK if bias_V is None else logits_NK + bias_V[ids_NK]


def top_logprobs(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    k: int,
    vocabulary: int,
    temperature: float,
    bias_V: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Ids and log-probs (N, k) of the most likely entries below ``vocabulary``; no gradient.

    The log-probs are those of the whole distribution.
    """
    wide = torch.promote_types(hidden_NH.dtype, torch.float32)
    size = max(1, _CHUNK_BYTES // (len(weight_VH) * wide.itemsize))
    ids, logps = (
        [hidden_NH.new_zeros(0, k, dtype=torch.long)],
        [hidden_NH.new_zeros(0, k, dtype=wide)],
    )
    for hidden_nH in torch.split(hidden_NH, size):
        logits_nV = (
            F.linear(hidden_nH, weight_VH.to(hidden_nH.dtype), bias_V).to(wide) / temperature
        )
        best = logits_nV[:, :vocabulary].topk(k)
        ids.append(best.indices)
        logps.append(best.values - logits_nV.logsumexp(-1, keepdim=True))
    return torch.cat(ids), torch.cat(logps)


class _GatherLogits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_NH: Tensor, weight_VH: Tensor, ids_NK: Tensor) -> Tensor:
        ctx.save_for_backward(hidden_NH, weight_VH, ids_NK)
        parts = [
            torch.einsum("nkh,nh->nk", weight_VH[ids_nK].to(hidden_nH.dtype), hidden_nH)
            for hidden_nH, ids_nK in _chunks(hidden_NH, ids_NK)
        ]
        return torch.cat([hidden_NH.new_zeros(0, ids_NK.shape[1]), *parts])

    @staticmethod
    def backward(ctx: Any, grad_NK: Tensor) -> tuple[Tensor, Tensor, None]:
        hidden_NH, weight_VH, ids_NK = ctx.saved_tensors
        grad_hidden_NH = torch.empty_like(hidden_NH)
        # half precision would lose most of what many tokens add to one row
        wide = torch.promote_types(weight_VH.dtype, torch.float32)
        grad_weight_VH = torch.zeros_like(weight_VH, dtype=wide)
        done = 0
        for hidden_nH, ids_nK in _chunks(hidden_NH, ids_NK):
            rows = slice(done, done + len(hidden_nH))
            grad_nK, done = grad_NK[rows], rows.stop
            weight_nKH = weight_VH[ids_nK].to(hidden_nH.dtype)
            grad_hidden_NH[rows] = torch.einsum("nk,nkh->nh", grad_nK, weight_nKH)
            outer_nKH = grad_nK[:, :, None] * hidden_nH[:, None, :]
            grad_weight_VH.index_add_(0, ids_nK.flatten(), outer_nKH.flatten(0, 1).to(wide))
        return grad_hidden_NH, grad_weight_VH.to(weight_VH.dtype), None


def _chunks(hidden_NH: Tensor, ids_NK: Tensor) -> list[tuple[Tensor, Tensor]]:
    per_token = ids_NK.shape[1] * hidden_NH.shape[1] * hidden_NH.dtype.itemsize
    size = max(1, _CHUNK_BYTES // max(per_token, 1))
    return list(zip(torch.split(hidden_NH, size), torch.split(ids_NK, size), strict=True))
