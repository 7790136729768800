"""Log-probs of chosen tokens from hidden states, without ever holding tokens x vocabulary.

Dimensions: N tokens, H hidden size, V vocabulary, v entries of one chunk of the vocabulary.

The vocabulary is taken in chunks, all tokens at once: every row of the LM head's weight is then
read, and its gradient written, once a pass; chunks of tokens would do both once a chunk. The
forward pass keeps maximum and sum of a running softmax, and its last chunk; the backward pass
makes the other chunks' logits again and turns each into gradients in place. Gradients cannot be
made in the forward pass already, as losses on top of a cross-entropy do it: here the derivative
of the loss by each log-prob is only known in the backward pass, and the weight's gradient is a
sum over tokens that needs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Bytes of one chunk's float32 logits. On CPU more gains little; elsewhere larger products keep the
# device busy.
_CHUNK_BYTES = {"cpu": 80 << 20}
_CHUNK_BYTES_ELSEWHERE = 512 << 20
# Below so many bytes of logits autograd's own operations are quicker, by a quarter millisecond.
_SMALL_BYTES = 1 << 20
_MIN_CHUNK = 256
# exp of it is 0 in float32 and float64; unlike -inf it can be multiplied by that 0.
_LEAST = -1e4


def fused_logprobs(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    target_N: Tensor,
    *,
    temperature: float,
    bias_V: Tensor | None = None,
    chunk_vocab: int | None = None,
    with_entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Log-probs of the targets under softmax((hidden @ weight.T + bias) / temperature).

    The product is made in autocast's dtype, or that of ``hidden_NH`` without autocast; everything
    after it is float32 (float64 for float64 input), as are sums over chunks.
    Few logits take the plain way, with the same result up to rounding.

    Args:
        hidden_NH: Last hidden states.
        weight_VH: Weight of the LM head; its gradient has its dtype.
        target_N: Token ids.
        temperature: The sampling temperature.
        bias_V: Bias of the LM head, if it has one.
        chunk_vocab: Entries of the vocabulary per chunk; None chooses by memory.
        with_entropy: Also return the entropy of each token's distribution, in nats; it too is
            differentiable, at no cost where nothing is differentiated through it.

    Returns:
        (N,) log-probs, and the (N,) entropies, None without ``with_entropy``.

    Raises:
        ValueError: If temperature or chunk_vocab is not positive, the shapes do not fit, or a
            target on a CPU is not in the vocabulary.
    """
    _check(hidden_NH, weight_VH, target_N, bias_V, temperature, chunk_vocab)
    device = hidden_NH.device.type
    dtype = hidden_NH.dtype
    if dtype != torch.float64 and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    with torch.autocast(device, enabled=False):
        hidden_NH = hidden_NH.to(dtype)
        if chunk_vocab is None:
            per_entry = max(1, len(target_N)) * _wide(dtype).itemsize
            if per_entry * len(weight_VH) <= _SMALL_BYTES:
                return _at_once(hidden_NH, weight_VH, bias_V, target_N, temperature, with_entropy)
            budget = _CHUNK_BYTES.get(device, _CHUNK_BYTES_ELSEWHERE)
            chunk_vocab = max(_MIN_CHUNK, budget // per_entry)
        logp_N, entropy_N = _Chunked.apply(  # type: ignore[no-untyped-call]
            hidden_NH, weight_VH, bias_V, target_N, temperature, chunk_vocab, with_entropy
        )
    return logp_N, entropy_N


def _check(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    target_N: Tensor,
    bias_V: Tensor | None,
    temperature: float,
    chunk_vocab: int | None,
) -> None:
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    if chunk_vocab is not None and chunk_vocab < 1:
        raise ValueError(f"chunk_vocab must be at least 1, got {chunk_vocab}")
    fits = (
        hidden_NH.ndim == weight_VH.ndim == 2
        and hidden_NH.shape[1] == weight_VH.shape[1]
        and target_N.shape == hidden_NH.shape[:1]
        and (bias_V is None or bias_V.shape == weight_VH.shape[:1])
    )
    if not fits:
        raise ValueError(
            f"shapes do not fit: hidden {tuple(hidden_NH.shape)}, weight {tuple(weight_VH.shape)}, "
            f"target {tuple(target_N.shape)}"
            + ("" if bias_V is None else f", bias {tuple(bias_V.shape)}")
        )
    if len(target_N) and target_N.device.type == "cpu":  # a GPU would have to be waited for
        least, most = (int(end) for end in target_N.aminmax())
        if least < 0 or most >= len(weight_VH):
            raise ValueError(f"targets {least} to {most} in a vocabulary of {len(weight_VH)}")


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _at_once(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    target_N: Tensor,
    temperature: float,
    with_entropy: bool,
) -> tuple[Tensor, Tensor | None]:
    dtype = hidden_NH.dtype
    bias_V = None if bias_V is None else bias_V.to(dtype)
    logits_NV = F.linear(hidden_NH, weight_VH.to(dtype), bias_V).to(_wide(dtype))
    if temperature != 1:
        logits_NV = logits_NV / temperature
    logp_NV = F.log_softmax(logits_NV, dim=-1)
    logp_N = logp_NV.gather(1, target_N[:, None])[:, 0]
    if not with_entropy:
        return logp_N, None
    return logp_N, entropy(logp_NV)


def entropy(logp_NV: Tensor) -> Tensor:
    """(N,) entropies in nats of whole distributions; -inf is a probability of 0."""
    return -(logp_NV.exp() * logp_NV.clamp(min=_LEAST)).sum(dim=-1)


class _Chunks:
    """Makes the scaled float32 logits of one chunk at a time, all in the same memory."""

    def __init__(
        self,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        temperature: float,
        most: int,
        memory: Tensor | None = None,
    ) -> None:
        self.hidden_NH, self.weight_VH, self.bias_V = hidden_NH, weight_VH, bias_V
        self.temperature = temperature
        vocabulary = len(weight_VH)
        size = math.ceil(vocabulary / math.ceil(vocabulary / most))
        # a GPU is several times slower on rows that do not begin at a multiple of 16 bytes
        size += -size % 64 if size >= _MIN_CHUNK else 0
        self.all = [
            slice(start, min(start + size, vocabulary)) for start in range(0, vocabulary, size)
        ]
        wide = _wide(hidden_NH.dtype)
        if memory is None:
            memory = hidden_NH.new_empty(len(hidden_NH) * size, dtype=wide)
        self.memory = memory
        self.product = memory if wide == hidden_NH.dtype else hidden_NH.new_empty(len(memory))

    def weight(self, chunk: slice) -> Tensor:
        """Rows of the weight in the dtype of the product."""
        return self.weight_VH[chunk].to(self.hidden_NH.dtype)

    def held(self, chunk: slice) -> Tensor:
        """Return the shared memory as a tensor of this chunk's shape."""
        return self._shaped(self.memory, chunk)

    def logits(self, chunk: slice, weight_vH: Tensor) -> Tensor:
        """Logits of the chunk, free to be overwritten."""
        product_Nv = self._shaped(self.product, chunk)
        if self.bias_V is None:
            torch.mm(self.hidden_NH, weight_vH.T, out=product_Nv)
        else:
            bias_v = self.bias_V[chunk].to(product_Nv.dtype)
            torch.addmm(bias_v, self.hidden_NH, weight_vH.T, out=product_Nv)
        logits_Nv = self.held(chunk)
        if self.product is not self.memory:
            logits_Nv.copy_(product_Nv)
        if self.temperature != 1:
            logits_Nv /= self.temperature
        return logits_Nv

    def narrow(self, grad_Nv: Tensor, chunk: slice) -> Tensor:
        """A gradient of the chunk's logits in the dtype of the product."""
        if self.product is self.memory:
            return grad_Nv
        return self._shaped(self.product, chunk).copy_(grad_Nv)

    def row_blocks(self, chunk_Nv: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield chunks of rows with memory for each: the product's, or a little of its own."""
        n, width = chunk_Nv.shape
        size = n // 2 if self.product is not self.memory else 0
        memory = self.product[: 2 * size * width].view(chunk_Nv.dtype)
        if not size:
            size = math.ceil(n / 32) or 1
            memory = chunk_Nv.new_empty(size * width)
        for start in range(0, n, size):
            rows = slice(start, min(start + size, n))
            yield rows, memory[: (rows.stop - start) * width].view(-1, width)

    def _shaped(self, memory: Tensor, chunk: slice) -> Tensor:
        shape = (len(self.hidden_NH), chunk.stop - chunk.start)
        return memory[: math.prod(shape)].view(shape)


class _RunningSoftmax:
    """Maximum, sum and entropy of softmaxes whose logits come in chunks."""

    def __init__(self, like_N: Tensor, with_entropy: bool) -> None:
        # not -inf, which a chunk of nothing but -inf would turn into NaN
        self.max_N = torch.full_like(like_N, torch.finfo(like_N.dtype).min)
        self.sum_N = torch.zeros_like(like_N)
        self.weighted_N = torch.zeros_like(like_N) if with_entropy else None
        """Sum of exp(x - max) * (x - max)."""

    def add(self, logits_Nv: Tensor, chunks: _Chunks) -> None:
        """Take in a chunk, and leave exp(x - max) in it."""
        max_N = torch.maximum(self.max_N, logits_Nv.amax(dim=1))
        z_Nv = logits_Nv.sub_(max_N[:, None])
        moved_N = self.max_N - max_N
        factor_N = moved_N.exp()
        if self.weighted_N is None:
            z_Nv.exp_()
        else:
            before_N = self.sum_N * moved_N.clamp(min=_LEAST) + self.weighted_N
            self.weighted_N = before_N * factor_N + _exp_and_weigh_(z_Nv, chunks)
        self.sum_N = self.sum_N * factor_N + z_Nv.sum(dim=1)
        self.max_N = max_N

    def entropy(self) -> Tensor | None:
        """Return the entropies in nats."""
        if self.weighted_N is None:
            return None
        return self.sum_N.log() - self.weighted_N / self.sum_N


def _exp_and_weigh_(z_Nv: Tensor, chunks: _Chunks) -> Tensor:
    """Sum of exp(z) * z over each row; ``z_Nv`` holds exp(z) afterwards."""
    weighted_N = z_Nv.new_empty(len(z_Nv))
    for rows, memory_nv in chunks.row_blocks(z_Nv):
        z_nv = z_Nv[rows].clamp_(min=_LEAST)
        exp_nv = torch.exp(z_nv, out=memory_nv)
        torch.sum(z_nv.mul_(exp_nv), dim=1, out=weighted_N[rows])
        z_nv.copy_(exp_nv)
    return weighted_N


def _own(target_N: Tensor, chunk: slice) -> tuple[Tensor, Tensor]:
    """Column of each target in the chunk, and whether it lies in it at all."""
    column_N = target_N - chunk.start
    size = chunk.stop - chunk.start
    return column_N.clamp(0, size - 1)[:, None], (column_N >= 0) & (column_N < size)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        target_N: Tensor,
        temperature: float,
        most: int,
        with_entropy: bool,
    ) -> tuple[Tensor, Tensor | None]:
        chosen_N = hidden_NH.new_zeros(len(target_N), dtype=_wide(hidden_NH.dtype))
        softmax = _RunningSoftmax(chosen_N, with_entropy)
        chunks = _Chunks(hidden_NH, weight_VH, bias_V, temperature, most)
        for chunk in chunks.all:
            logits_Nv = chunks.logits(chunk, chunks.weight(chunk))
            column_N1, inside_N = _own(target_N, chunk)
            chosen_N = torch.where(inside_N, logits_Nv.gather(1, column_N1)[:, 0], chosen_N)
            softmax.add(logits_Nv, chunks)
        entropy_N = softmax.entropy()
        ctx.save_for_backward(
            hidden_NH, weight_VH, bias_V, target_N, softmax.max_N, softmax.sum_N, entropy_N
        )
        ctx.temperature, ctx.most = temperature, most
        ctx.memory = chunks.memory if any(ctx.needs_input_grad) else None
        ctx.set_materialize_grads(False)
        return (chosen_N - softmax.max_N) - softmax.sum_N.log(), entropy_N

    @staticmethod
    def backward(
        ctx: Any, grad_logp_N: Tensor | None, grad_entropy_N: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None, None, None]:
        with torch.autocast(ctx.saved_tensors[0].device.type, enabled=False):
            return (*_backward(ctx, grad_logp_N, grad_entropy_N), None, None, None, None)


def _backward(
    ctx: Any, grad_logp_N: Tensor | None, grad_entropy_N: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    hidden_NH, weight_VH, bias_V, target_N, max_N, sum_N, entropy_N = ctx.saved_tensors
    needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
    if grad_logp_N is None:
        grad_logp_N = torch.zeros_like(max_N)
    scale_N = grad_logp_N.to(max_N.dtype) / ctx.temperature
    grad_hidden_NH = torch.zeros_like(hidden_NH, dtype=max_N.dtype) if needs_hidden else None
    grad_weight_VH = torch.empty_like(weight_VH) if needs_weight else None
    grad_bias_V = torch.empty_like(bias_V) if needs_bias else None
    # the memory still holds the last chunk, but is about to be overwritten: a second backward
    # pass through the same graph has to make that chunk again
    memory, ctx.memory = ctx.memory, None
    chunks = _Chunks(hidden_NH, weight_VH, bias_V, ctx.temperature, ctx.most, memory)
    for chunk in reversed(chunks.all):
        weight_vH = chunks.weight(chunk)
        if memory is not None and chunk == chunks.all[-1]:
            grad_Nv = chunks.held(chunk)
        else:
            grad_Nv = chunks.logits(chunk, weight_vH).sub_(max_N[:, None]).exp_()
        # d logp / d logits = (onehot(target) - softmax) / temperature
        if grad_entropy_N is None:
            grad_Nv.mul_((-scale_N / sum_N)[:, None])
        else:
            entropy_scale_N = grad_entropy_N.to(max_N.dtype) / ctx.temperature
            p_Nv = grad_Nv.div_(sum_N[:, None])
            _entropy_and_softmax_part_(p_Nv, chunks, entropy_N, scale_N, entropy_scale_N)
        column_N1, inside_N = _own(target_N, chunk)
        grad_Nv.scatter_add_(1, column_N1, torch.where(inside_N, scale_N, 0.0)[:, None])
        if grad_bias_V is not None:
            grad_bias_V[chunk] = grad_Nv.sum(dim=0)
        grad_Nv = chunks.narrow(grad_Nv, chunk)
        if grad_weight_VH is not None:
            _product_into(grad_weight_VH[chunk], grad_Nv.T, hidden_NH)
        if grad_hidden_NH is not None and grad_Nv.dtype == grad_hidden_NH.dtype:
            grad_hidden_NH.addmm_(grad_Nv, weight_vH)
        elif grad_hidden_NH is not None:
            grad_hidden_NH += grad_Nv @ weight_vH
    return (
        None if grad_hidden_NH is None else grad_hidden_NH.to(hidden_NH.dtype),
        grad_weight_VH,
        grad_bias_V,
    )


def _entropy_and_softmax_part_(
    p_Nv: Tensor, chunks: _Chunks, entropy_N: Tensor, scale_N: Tensor, entropy_scale_N: Tensor
) -> None:
    """Turn a chunk's probabilities into its gradient, without the targets' own part.

    d entropy / d logits = -p (log p + entropy) / temperature.
    """
    for rows, memory_nv in chunks.row_blocks(p_Nv):
        own_nv = torch.special.entr(p_Nv[rows], out=memory_nv).mul_(entropy_scale_N[rows, None])
        p_Nv[rows].mul_((-scale_N - entropy_scale_N * entropy_N)[rows, None]).add_(own_nv)


def _product_into(out: Tensor, left: Tensor, right: Tensor) -> None:
    if out.dtype == right.dtype:
        torch.mm(left, right, out=out)
    else:
        out.copy_(left @ right)
