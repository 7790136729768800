"""Log-probs and entropies of the LM head, whose element-wise work is two compiled kernels.

The plain way reads and writes a chunk's float32 logits some twenty times; here each pass reads the
product in its own precision once or twice, and the gradient takes the product's place. Dimensions:
N tokens, H hidden size, V vocabulary, v entries of one chunk of the vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

CARD_SHARE = 32
"""A chunk's logits take at most one part in so many of a GPU's memory."""
_CHUNK_BYTES = 512 << 20
"""The most that they take elsewhere."""
_ALIGNED = 8
"""A GPU is several times slower on rows that do not begin at a multiple of 16 bytes."""
_LEAST = -1e4
"""exp of it is 0 in float32 and float64; unlike -inf it can be multiplied by that 0."""


def compiled_logprobs(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    target_N: Tensor,
    *,
    temperature: float,
    bias_V: Tensor | None = None,
    with_entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute ``fused_logprobs``, up to rounding; see there."""
    device, dtype = hidden_NH.device.type, hidden_NH.dtype
    if dtype != torch.float64 and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    with torch.autocast(device, enabled=False):
        logp_N, entropy_N = _Head.apply(  # type: ignore[no-untyped-call]
            hidden_NH.to(dtype), weight_VH, bias_V, target_N, temperature
        )
    return logp_N, entropy_N if with_entropy else None


def _most(device: torch.device) -> int:
    """Bytes that a chunk's logits may take."""
    if device.type != "cuda":
        return _CHUNK_BYTES
    return int(torch.cuda.get_device_properties(device).total_memory) // CARD_SHARE


def chunk_size(vocabulary: int, entry_bytes: int, most: int) -> int:
    """Entries of a chunk: the vocabulary over the least power of two that keeps to ``most`` bytes.

    Most vocabularies have no remainder then, and none of their chunks is small.

    Args:
        vocabulary: Size of the vocabulary.
        entry_bytes: Of one entry's logits for all tokens.
        most: Bytes that a chunk may take.
    """
    parts = 1
    while vocabulary * entry_bytes > most * parts and parts * _ALIGNED < vocabulary:
        parts *= 2
    size = math.ceil(vocabulary / parts)
    return size + -size % _ALIGNED


class _Products:
    """Makes the logits of one chunk at a time, before the temperature, all in the same memory."""

    def __init__(self, hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None) -> None:
        self.hidden_NH, self.weight_VH, self.bias_V = hidden_NH, weight_VH, bias_V
        vocabulary, entry_bytes = len(weight_VH), len(hidden_NH) * hidden_NH.itemsize
        size = chunk_size(vocabulary, entry_bytes, _most(hidden_NH.device))
        self.chunks = [slice(at, min(at + size, vocabulary)) for at in range(0, vocabulary, size)]
        self.memory: Tensor | None = None

    def weight(self, chunk: slice) -> Tensor:
        """Rows of the weight in the dtype of the product."""
        return self.weight_VH[chunk].to(self.hidden_NH.dtype)

    def place(self, chunk: slice) -> Tensor:
        """The memory, shaped as a chunk."""
        if self.memory is None:
            longest = self.chunks[0].stop
            self.memory = self.hidden_NH.new_empty(len(self.hidden_NH) * longest)
        shape = (len(self.hidden_NH), chunk.stop - chunk.start)
        return self.memory[: math.prod(shape)].view(shape)

    def make(self, chunk: slice, weight_vH: Tensor) -> Tensor:
        """Logits of the chunk, free to be overwritten."""
        product_Nv = self.place(chunk)
        if self.bias_V is None:
            return torch.mm(self.hidden_NH, weight_vH.T, out=product_Nv)
        bias_v = self.bias_V[chunk].to(product_Nv.dtype)
        return torch.addmm(bias_v, self.hidden_NH, weight_vH.T, out=product_Nv)


@torch.compile(dynamic=True)
def _take_in(
    product_Nv: Tensor,
    column_N: Tensor,
    max_N: Tensor,
    sum_N: Tensor,
    weighted_N: Tensor,
    chosen_N: Tensor,
    temperature: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Take a chunk into the running softmax: maximum, sum, sum of exp(z) z, logit of the target."""
    logits_Nv = product_Nv.to(max_N.dtype) / temperature
    new_N = torch.maximum(max_N, logits_Nv.amax(dim=1))
    z_Nv = logits_Nv - new_N[:, None]
    exp_Nv = z_Nv.exp()
    moved_N = max_N - new_N
    factor_N = moved_N.exp()
    before_N = sum_N * moved_N.clamp(min=_LEAST) + weighted_N
    weighted_N = before_N * factor_N + (exp_Nv * z_Nv.clamp(min=_LEAST)).sum(dim=1)
    size = product_Nv.shape[1]
    own_N = logits_Nv.gather(1, column_N.clamp(0, size - 1)[:, None])[:, 0]
    chosen_N = torch.where((column_N >= 0) & (column_N < size), own_N, chosen_N)
    return new_N, sum_N * factor_N + exp_Nv.sum(dim=1), weighted_N, chosen_N


@torch.compile(dynamic=True)
def _to_gradient_(
    product_Nv: Tensor,
    column_N: Tensor,
    max_N: Tensor,
    sum_N: Tensor,
    entropy_N: Tensor,
    scale_N: Tensor,
    entropy_scale_N: Tensor,
    temperature: float,
) -> None:
    """Turn a chunk's logits into the loss's derivative by them.

    d logp / d logits = (onehot(target) - p) / T, d entropy / d logits = -p (log p + entropy) / T;
    both scales have the 1 / T in them.
    """
    z_Nv = product_Nv.to(max_N.dtype) / temperature - max_N[:, None]
    logp_Nv = (z_Nv - sum_N.log()[:, None]).clamp(min=_LEAST)
    by_p_Nv = scale_N[:, None] + entropy_scale_N[:, None] * (logp_Nv + entropy_N[:, None])
    own_Nv = torch.arange(product_Nv.shape[1], device=column_N.device) == column_N[:, None]
    grad_Nv = torch.where(own_Nv, scale_N[:, None], 0.0) - logp_Nv.exp() * by_p_Nv
    product_Nv.copy_(grad_Nv)


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        target_N: Tensor,
        temperature: float,
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(hidden_NH.dtype, torch.float32)
        zero_N = hidden_NH.new_zeros(len(target_N), dtype=wide)
        running = torch.full_like(zero_N, torch.finfo(wide).min), zero_N, zero_N, zero_N
        products = _Products(hidden_NH, weight_VH, bias_V)
        for chunk in products.chunks:
            product_Nv = products.make(chunk, products.weight(chunk))
            running = _take_in(product_Nv, target_N - chunk.start, *running, temperature)
        max_N, sum_N, weighted_N, chosen_N = running
        entropy_N = sum_N.log() - weighted_N / sum_N
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, target_N, max_N, sum_N, entropy_N)
        ctx.temperature = temperature
        ctx.products = products if any(ctx.needs_input_grad) else None
        ctx.set_materialize_grads(False)
        return (chosen_N - max_N) - sum_N.log(), entropy_N

    @staticmethod
    def backward(
        ctx: Any, grad_logp_N: Tensor | None, grad_entropy_N: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        with torch.autocast(ctx.saved_tensors[0].device.type, enabled=False):
            return (*_backward(ctx, grad_logp_N, grad_entropy_N), None, None)


def _backward(
    ctx: Any, grad_logp_N: Tensor | None, grad_entropy_N: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    hidden_NH, weight_VH, bias_V, target_N, max_N, sum_N, entropy_N = ctx.saved_tensors
    needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
    scale_N, entropy_scale_N = (
        torch.zeros_like(max_N) if grad_N is None else grad_N.to(max_N.dtype) / ctx.temperature
        for grad_N in (grad_logp_N, grad_entropy_N)
    )
    grad_hidden_NH = torch.zeros_like(hidden_NH, dtype=max_N.dtype) if needs_hidden else None
    grad_weight_VH = torch.empty_like(weight_VH) if needs_weight else None
    grad_bias_V = torch.empty_like(bias_V) if needs_bias else None
    # the last chunk's logits, often the only one's, are still there for a graph's first such pass
    kept, ctx.products = ctx.products, None
    products = kept or _Products(hidden_NH, weight_VH, bias_V)
    for chunk in reversed(products.chunks):
        weight_vH = products.weight(chunk)
        there = kept is not None and chunk == products.chunks[-1]
        grad_Nv = products.place(chunk) if there else products.make(chunk, weight_vH)
        _to_gradient_(
            grad_Nv,
            target_N - chunk.start,
            max_N,
            sum_N,
            entropy_N,
            scale_N,
            entropy_scale_N,
            ctx.temperature,
        )
        if grad_bias_V is not None:
            grad_bias_V[chunk] = grad_Nv.sum(dim=0, dtype=max_N.dtype)
        if grad_weight_VH is not None:
            grad_weight_VH[chunk] = grad_Nv.T @ hidden_NH
        if grad_hidden_NH is not None:
            grad_hidden_NH += grad_Nv @ weight_vH
    return (
        None if grad_hidden_NH is None else grad_hidden_NH.to(hidden_NH.dtype),
        grad_weight_VH,
        grad_bias_V,
    )
