"""Computes the memory of the moments in a backward pass that may be the worst of a step.

Bytes are counted tensor by tensor, as rlvr and transformers compute a layer and as FSDP2 gathers
and sums: the tensors that autograd keeps, and those that are created and freed on the way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rlvr_doctor.planner.setup import MASTER, Micro, Setup

LOGITS = 512 << 20
"""Bytes of one chunk of float32 logits in ``rlvr_core/step/logprobs.py`` on a GPU."""
_CARD_SHARE = 32
"""A chunk of a compiled head takes 1/32 of the GPU, as in ``compiling/head.py``."""
_COMPILED = 0.525
"""Activations that compiled layers keep for a token, without attention, as a share of what eager
layers keep; measured on an H200. Their kernels recompute the rest."""
_LEAST_CHUNK = 256
_LOGIT = 4


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of the step: bytes in addition to those held throughout.

    Attributes:
        name: Name of the operation.
        gathered: Weights that FSDP has gathered, and gradients that it sends.
        gradients: Gradients of weights.
        activations: Tensors that autograd keeps.
        head: Logits of the LM head, and its gradient.
        work: Other temporary tensors.
    """

    name: str
    gathered: float
    gradients: float
    activations: float
    head: float
    work: float

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return self.gathered + self.gradients + self.activations + self.head + self.work


def saved_by_layer(setup: Setup, micro: Micro) -> float:
    """Return the bytes that autograd keeps of one layer without checkpointing."""
    shape, adapter, width = setup.shape, setup.adapter, setup.width
    hidden, queries, keys = shape.hidden, shape.queries, shape.keys
    # float32 inputs of two norms; what a trained weight multiplies is kept for its gradient
    token = 8.0 * hidden + (0 if adapter else 2 * setup.stream * hidden)
    token += 4 * (2 + shape.heads)
    if shape.normed:
        token += (4 + (0 if adapter else width)) * (queries + keys)
        token += 4 * (shape.heads + shape.kv_heads)
    if adapter and setup.rounded:  # each matrix A has the norm's output, or the MLP's product
        kept = 2 * hidden + 4 * shape.inner
        token += width * (kept + adapter.rank * adapter.matrices)
    elif adapter and setup.half:  # each matrix A has its own cast copy of its input
        token += width * (adapter.inputs + adapter.rank * adapter.matrices + 3 * shape.inner)
    else:  # autocast makes a copy for each of five products, and without it they share two
        token += (5 if setup.autocast else 2) * width * hidden + 4 * width * shape.inner
    cast = 0.0
    if setup.autocast:
        cast = float(width * (adapter.layer_params if adapter else shape.layer_params))
    if setup.compiled:
        token *= _COMPILED
    return token * micro.tokens + _attention(setup, micro) + cast


def _attention(setup: Setup, micro: Micro) -> float:
    """Queries, keys, values and output: packed for flash attention, in grids in float32."""
    shape, width = setup.shape, setup.width
    if setup.half:
        return float(2 * width * (shape.queries * micro.tokens + shape.keys * micro.keys))
    grids = 2 * shape.queries * (micro.query_slots + micro.key_slots) + micro.mask
    return float(width * (grids + shape.queries * micro.tokens))


def head_chunk(setup: Setup, loss_tokens: int) -> int:
    """Return the number of vocabulary entries in a chunk of the LM head."""
    if setup.compiled:
        entry, parts = setup.width * loss_tokens, 1
        while setup.shape.vocab * entry * _CARD_SHARE > setup.card.memory * parts:
            parts *= 2
        return math.ceil(setup.shape.vocab / parts)
    most = max(_LEAST_CHUNK, LOGITS // (_LOGIT * max(1, loss_tokens)))
    size = math.ceil(setup.shape.vocab / math.ceil(setup.shape.vocab / most))
    return min(setup.shape.vocab, size + -size % 64)


def moments_of(setup: Setup, micro: Micro, *, later: bool) -> list[Moment]:
    """Return the moments of a micro-batch's backward pass that may need the most memory.

    Args:
        setup: The run.
        micro: The micro-batch.
        later: Whether gradients of an earlier one are there.
    """
    shape = setup.shape
    gradients = float(MASTER * setup.trained) / setup.shards
    before = gradients if later and not setup.buckets else 0.0
    layer, residual = saved_by_layer(setup, micro), setup.stream * shape.hidden * micro.tokens
    again = setup.recomputed
    held = of_layers = residual * again + layer * (shape.layers - again)
    if setup.adapter and not again:  # nothing before the first norm is trained
        held -= 4.0 * shape.hidden * micro.tokens
    held += 2.0 * setup.stream * shape.head_dim * micro.tokens  # sines and cosines of positions
    table = 0.0 if setup.adapter else float(setup.whole_width * shape.head_params)
    norm = (4 if setup.adapter else 4 + setup.stream) * shape.hidden * micro.tokens
    head = Moment(
        "backward of the LM head",
        _whole(setup, 1) if setup.fsdp else 0.0,  # the last layer's weights arrive
        before,
        held + norm,
        table + _head(setup, micro),
        4.0 * shape.hidden * micro.loss_tokens,
    )
    if setup.fsdp:
        return [head, *_of_shards(setup, micro, before, held - of_layers)]
    # gradients of the head wait for the embedding's where both are one tensor
    waiting = table if shape.tied or not later else 0.0
    # of an earlier layer that is computed again, the one behind it is gone by then
    once_more = layer - residual if setup.last_recomputed else 0.0
    work = _layer_work(setup, micro)
    moments = [
        head,
        Moment("backward of the last layer", 0.0, before, held + once_more, waiting, work),
    ]
    if not setup.adapter:
        # head's, embedding's and their sum, which is the gradient itself where none was before
        extra = (3 if shape.tied else 1) * table
        base = 0.0 if setup.buckets else gradients
        base -= 0.0 if later or setup.buckets else float(MASTER * shape.head_params)
        moments.append(Moment("backward of the embedding", 0.0, base, 0.0, extra, 0.0))
    return moments


def _whole(setup: Setup, layers: int) -> float:
    """Return the bytes that FSDP has gathered: some layers, and all that is in no layer."""
    shape = setup.shape
    return float(setup.whole_width * (layers * shape.layer_params + shape.outer_params))


def _of_shards(setup: Setup, micro: Micro, before: float, beside: float) -> Iterator[Moment]:
    """Yield the moments after the head's, in which FSDP2 gathers and sums.

    While a layer's gradients are computed, the weights of the next layer arrive, and the sent
    gradients of the previous layer remain in float32. A layer's gradients are sent after its
    weights are freed; those outside of layers are sent at the end.

    Args:
        setup: The run.
        micro: The micro-batch.
        before: Bytes of gradients of an earlier micro-batch.
        beside: Bytes that autograd keeps outside of layers.
    """
    shape, trained = setup.shape, 0 if setup.adapter else 1
    saved, residual = saved_by_layer(setup, micro), setup.stream * shape.hidden * micro.tokens
    sent = float(MASTER * trained * shape.layer_params)
    table = float(setup.whole_width * trained * shape.head_params)
    below = beside
    for layer in range(shape.layers):
        done = shape.layers - 1 - layer
        yield Moment(
            "backward of a layer" if done else "backward of the last layer",
            _whole(setup, 2 if layer else 1) + (sent if done else 0.0),
            before or done * sent / setup.shards,
            below + saved,
            table,
            _layer_work(setup, micro),
        )
        below += residual if setup.every and layer % setup.every == 0 else saved
    if trained:
        layers = before or shape.layers * sent / setup.shards
        tables = (3 if shape.tied else 2) * table
        embedding = _whole(setup, 0) + sent
        yield Moment("backward of the embedding", embedding, layers, 0.0, tables, 0.0)
        outer = (setup.whole_width + MASTER) * shape.outer_params
        yield Moment("sum of the embedding's gradients", float(outer), layers, 0.0, 0.0, 0.0)


def _layer_work(setup: Setup, micro: Micro) -> float:
    """Return the bytes of temporary tensors in the MLP's backward pass."""
    hidden, inner, width = setup.shape.hidden, setup.shape.inner, setup.width
    if setup.adapter and setup.autocast:  # peft makes a float32 copy of each input
        return float((12 * hidden + 6 * inner) * micro.tokens)
    # gradients of the product of gate and up, and of its two factors; the product is gone
    product = (4 * hidden + 2 * width * inner) * micro.tokens
    if setup.adapter:
        return float(product)
    if setup.fsdp:  # gradients of its weights stay until those of all are there
        return float(product + setup.whole_width * hidden * inner)
    # before, the weight's gradient of the last product: as it is computed, and in float32
    weight = (MASTER + (width if setup.half else 0)) * hidden * inner
    cast = width * hidden if setup.autocast else 0
    return float(max(product, (4 * hidden + cast + width * inner) * micro.tokens + weight))


def _head(setup: Setup, micro: Micro) -> float:
    """Return the bytes of a chunk's logits, hidden states and temporary products."""
    hidden, width, n = setup.shape.hidden, setup.width, micro.loss_tokens
    size = head_chunk(setup, n)
    logits, states = _LOGIT * n * size, width * hidden * n
    if setup.compiled:
        logits = 0 if setup.half else logits  # the gradient takes the product's place
    if not setup.half:
        return float(logits + states)
    cast = width * size * hidden if setup.autocast and not setup.adapter else 0
    return float(logits + width * n * size + states + cast + max(cast, width * hidden * n))
