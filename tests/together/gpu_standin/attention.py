"""The attention kernels of a GPU, exactly, with their own conditions.

``_varlen_attn``: sequence ``i`` has queries ``cu_q[i]:cu_q[i + 1]`` and keys
``cu_k[i]:cu_k[i + 1]``; its last query sees its last key, and each earlier one as many keys fewer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def run(name: str, schema: Any, args: Any, kwargs: Any) -> tuple[tuple[Tensor, ...], int]:
    """Results of ``torch_attn::_varlen_attn`` or its backward pass, and their FLOPs.

    Raises:
        AssertionError: The kernel of a GPU would refuse these arguments.
    """
    given = {one.name: value for one, value in zip(schema.arguments, args, strict=False)} | kwargs
    query, key, value = (given[one] for one in ("query", "key", "value"))
    starts = [given[one].held for one in ("cu_seq_q", "cu_seq_k")]
    assert query.dtype in (torch.float16, torch.bfloat16), f"flash attention in {query.dtype}"
    assert query.dtype == key.dtype == value.dtype, "flash attention of several dtypes"
    assert query.is_contiguous(), "flash attention of queries that are not contiguous"
    assert all(one.dtype == torch.int32 for one in starts), "flash attention wants int32 starts"
    heads = [one.held for one in (query, key, value)]
    scale = given.get("scale")
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    pairs = sum(nq * nk - nq * (nq - 1) // 2 for _, nq, _, nk in _sequences(*starts))
    product = 2 * pairs * query.shape[1] * query.shape[2]
    if name == "_varlen_attn":
        return _forward(*heads, *starts, scale), 2 * product
    return _backward(given["grad_out"].held, *heads, *starts, scale), 5 * product


_PLAIN = torch.nn.functional.scaled_dot_product_attention


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """torch's function as a GPU does it with a mask: the choice of a kernel is in C++ there."""
    if query.device.type != "cuda":
        more = {"scale": scale, "enable_gqa": enable_gqa}
        return _PLAIN(query, key, value, attn_mask, dropout_p, is_causal, **more)
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        query, key, value = (one.to(dtype) for one in (query, key, value))
    if enable_gqa:
        shared = query.shape[1] // key.shape[1]
        key, value = (one.repeat_interleave(shared, 1) for one in (key, value))
    bias = attn_mask
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        bias = torch.zeros_like(attn_mask, dtype=query.dtype)
        bias = bias.masked_fill(~attn_mask, -torch.inf)
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    out: Tensor = kernel(query, key, value, bias, True, dropout_p, is_causal, scale=scale)[0]
    return out


def run_efficient(
    name: str, args: Any, kwargs: dict[str, Any]
) -> tuple[tuple[Tensor | None, ...], int]:
    """Results of torch's memory-efficient attention or its backward pass, and their FLOPs."""
    held = [getattr(one, "held", one) for one in args]
    if any(isinstance(one, Tensor) and one.is_meta for one in held):
        held = [one.to("meta") if isinstance(one, Tensor) else one for one in held]
    scale = kwargs.get("scale")
    if name == "_scaled_dot_product_efficient_attention":
        q, k, v, bias, *_ = held
        causal = held[6] if len(held) > 6 else kwargs.get("is_causal", False)
        score = _biased(q, k, bias, causal, scale)
        product = 2 * q.numel() * k.shape[-2]
        seed = torch.zeros((), dtype=torch.int64)
        out = torch.empty_like(q) if q.is_meta else (score.softmax(-1) @ v.float()).to(q.dtype)
        return (out, score.logsumexp(-1), seed, seed.clone()), 2 * product
    grad, q, k, v, bias, *_ = held
    causal = held[11] if len(held) > 11 else kwargs.get("is_causal", False)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    p = _biased(q, k, bias, causal, scale).softmax(-1)
    d_p = grad.float() @ v.float().transpose(-1, -2)
    d_score = p * (d_p - (d_p * p).sum(-1, keepdim=True)) * scale
    grads = d_score @ k.float(), d_score.transpose(-1, -2) @ q.float(), p.mT @ grad.float()
    # the kernel writes them as (B, n, h, D)
    laid_out = (one.transpose(1, 2).contiguous().transpose(1, 2) for one in grads)
    found = tuple(one.to(like.dtype) for one, like in zip(laid_out, (q, k, v), strict=True))
    return (*found, None), 10 * q.numel() * k.shape[-2]


def _biased(q: Tensor, k: Tensor, bias: Tensor | None, causal: bool, scale: Any) -> Tensor:
    """Scores (B, h, nq, nk) with what is added to them; a causal mask is aligned at the start."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    score = q.float() @ k.float().transpose(-1, -2) * scale
    if bias is not None:
        score = score + bias.float()
    if causal:
        seen = torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).tril()
        score = score.masked_fill(~seen, -torch.inf)
    return score


def _sequences(starts_q: Tensor, starts_k: Tensor) -> Iterator[tuple[int, int, int, int]]:
    """Start and length of each sequence's queries and keys."""
    qs, ks = starts_q.tolist(), starts_k.tolist()
    for place in range(len(qs) - 1):
        yield qs[place], qs[place + 1] - qs[place], ks[place], ks[place + 1] - ks[place]


def _forward(
    q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor, starts_k: Tensor, scale: float
) -> tuple[Tensor, ...]:
    n, h, _ = q.shape
    seed = torch.zeros(2, dtype=torch.uint64)
    if q.is_meta:
        return torch.empty_like(q), torch.empty(h, n, device="meta"), seed
    out, lse = torch.zeros_like(q), torch.zeros(h, n)
    for place, nq, other, nk in _sequences(starts_q, starts_k):
        if nq:
            score = _scores(q[place : place + nq], k[other : other + nk], scale)
            lse[:, place : place + nq] = score.logsumexp(-1)
            seen = score.softmax(-1) @ _grouped(v[other : other + nk], h)
            out[place : place + nq] = seen.transpose(0, 1).to(q.dtype)
    return out, lse, seed


def _backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    scale: float,
) -> tuple[Tensor, ...]:
    grads = tuple(torch.zeros_like(one) for one in (q, k, v))
    if q.is_meta:
        return grads
    for place, nq, other, nk in _sequences(starts_q, starts_k):
        if nq:
            mine, theirs = slice(place, place + nq), slice(other, other + nk)
            score = _scores(q[mine], k[theirs], scale)
            found = _gradients(score.softmax(-1), grad[mine], q[mine], k[theirs], v[theirs], scale)
            for whole, part, at in zip(grads, found, (mine, theirs, theirs), strict=True):
                whole[at] = part.to(whole.dtype)
    return grads


def _gradients(
    p_hqk: Tensor, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """By the formulas of softmax attention: autograd is not to be had below it."""
    h, grouped = q.shape[1], (k.shape[1], -1)
    grad_hqD = grad.transpose(0, 1).float()
    d_value = p_hqk.transpose(1, 2) @ grad_hqD
    d_p = grad_hqD @ _grouped(v, h).transpose(1, 2)
    d_score = p_hqk * (d_p - (d_p * p_hqk).sum(-1, keepdim=True)) * scale
    d_query = d_score @ _grouped(k, h)
    d_key = d_score.transpose(1, 2) @ q.transpose(0, 1).float()
    d_key, d_value = (one.unflatten(0, grouped).sum(1).transpose(0, 1) for one in (d_key, d_value))
    return d_query.transpose(0, 1), d_key, d_value


def _grouped(keys: Tensor, heads: int) -> Tensor:
    """Keys (n, hk, D) as (heads, n, D): each serves several queries' heads."""
    return keys.transpose(0, 1).float().repeat_interleave(heads // keys.shape[1], 0)


def _scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    nq, nk = len(q), len(k)
    score = q.transpose(0, 1).float() @ _grouped(k, q.shape[1]).transpose(1, 2) * scale
    seen = torch.ones(nq, nk, dtype=torch.bool).tril(nk - nq)
    return score.masked_fill(~seen, -torch.inf)
