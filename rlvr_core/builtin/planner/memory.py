"""Bytes of one training GPU, by part and at the worst moment of a step.

Counted tensor by tensor as rlvr and transformers compute a layer: what autograd keeps, and what
is made and freed on the way. docs/plan.md has the formulas, and what they were compared with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rlvr_core.builtin.planner.cards import RESERVED
from rlvr_core.builtin.planner.setup import MASTER, Micro, Setup

LOGITS = 512 << 20
"""Bytes of one chunk of float32 logits, as ``rlvr_core/step/logprobs.py`` has it on a GPU."""
_CARD_SHARE = 32
"""One part in so many of a GPU: a chunk of a compiled head's, as ``compiling/head.py`` has it."""
_COMPILED = 0.525
"""Share of what eager layers keep for a token, attention aside, that compiled ones keep, as seen on
an H200: the rest is computed again inside of their kernels."""
_LEAST_CHUNK = 256
_LOGIT = 4


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes that a training GPU holds throughout a run.

    Attributes:
        weights: In float32 where they are trained, and of an engine's own copy.
        reference: The reference model.
        optimizer: State of the optimizer.
        buckets: Gradients that DDP keeps room for between steps.
    """

    weights: float
    reference: float
    optimizer: float
    buckets: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.weights + self.reference + self.optimizer + self.buckets


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of the step: bytes on top of what is held throughout.

    Attributes:
        name: What is being done.
        gathered: Weights that FSDP has brought together, and gradients of them.
        gradients: Of weights.
        activations: What autograd keeps.
        head: Logits of the LM head, and its gradient.
        work: What else is made on the way.
    """

    name: str
    gathered: float
    gradients: float
    activations: float
    head: float
    work: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.gathered + self.gradients + self.activations + self.head + self.work


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one training GPU, and of the engine's.

    Attributes:
        held: Throughout.
        worst: The worst moment of training.
        reserved: What no tensor takes.
        engine: Share of a colocated engine while it generates; 0 without one.
        kv_room: For keys and values where completions are generated; below 0 not even the weights
            fit.
        kv_needed: For the keys and values of one completion of the longest kind.
        training: Peak of training.
        generating: Peak of a training GPU while its engine generates.
        card: Of the card.
    """

    held: Held
    worst: Moment
    reserved: float
    engine: float
    kv_room: float
    kv_needed: float
    training: float
    generating: float
    card: float

    @property
    def peak(self) -> float:
        """The most at a time."""
        return max(self.training, self.generating)

    @property
    def moment(self) -> str:
        """When that is."""
        return "generation" if self.generating > self.training else self.worst.name

    @property
    def left(self) -> float:
        """Free at the peak; below 0 it does not fit."""
        return self.card - self.peak

    @property
    def lack(self) -> float:
        """Bytes that are missing: on the card, or in the engine's share; 0 where it fits."""
        return max(0.0, -self.left, self.kv_needed - self.kv_room)


def saved_by_layer(setup: Setup, micro: Micro) -> float:
    """Bytes that autograd keeps of one layer without checkpointing."""
    shape, adapter, width = setup.shape, setup.adapter, setup.width
    hidden, queries, keys = shape.hidden, shape.queries, shape.keys
    # float32 inputs of two norms; what a trained weight multiplies is kept for its gradient
    token = 8.0 * hidden + (0 if adapter else 2 * setup.stream * hidden)
    token += 4 * (2 + shape.heads)
    if shape.normed:
        token += (4 + (0 if adapter else width)) * (queries + keys)
        token += 4 * (shape.heads + shape.kv_heads)
    if adapter and setup.half:  # each matrix A has its own cast copy of its input
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
    """Entries of the vocabulary in a chunk of the LM head."""
    if setup.compiled:
        entry, parts = setup.width * loss_tokens, 1
        while setup.shape.vocab * entry * _CARD_SHARE > setup.card.memory * parts:
            parts *= 2
        return math.ceil(setup.shape.vocab / parts)
    most = max(_LEAST_CHUNK, LOGITS // (_LOGIT * max(1, loss_tokens)))
    size = math.ceil(setup.shape.vocab / math.ceil(setup.shape.vocab / most))
    return min(setup.shape.vocab, size + -size % 64)


def moments_of(setup: Setup, micro: Micro, *, later: bool) -> list[Moment]:
    """The moments of a micro-batch's backward pass that may be the worst.

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
    held = residual * again + layer * (shape.layers - again)
    if setup.adapter and not again:  # nothing before the first norm is trained
        held -= 4.0 * shape.hidden * micro.tokens
    held += 2.0 * setup.stream * shape.head_dim * micro.tokens  # sines and cosines of positions
    table = 0.0 if setup.adapter else float(setup.whole_width * shape.head_params)
    gathered = _gathered(setup)
    # gradients of the head wait for the embedding's where both are one tensor
    waiting = table if shape.tied or not later else 0.0
    # of an earlier layer that is computed again, the one behind it is gone by then
    once_more = layer - residual if setup.last_recomputed else 0.0
    norm = (4 if setup.adapter else 4 + setup.stream) * shape.hidden * micro.tokens
    found = [
        Moment(
            "backward of the LM head",
            gathered,
            before,
            held + norm,
            table + _head(setup, micro),
            4.0 * shape.hidden * micro.loss_tokens,
        ),
        Moment(
            "backward of the last layer",
            gathered,
            before,
            held + once_more,
            waiting,
            _layer_work(setup, micro),
        ),
    ]
    if not setup.adapter:
        # head's, embedding's and their sum, which is the gradient itself where none was before
        extra = (3 if shape.tied else 1) * table
        if setup.fsdp:  # what is in no layer is summed over the GPUs at the end, in float32
            extra = max(extra, float((setup.whole_width + MASTER) * shape.outer_params))
        base = 0.0 if setup.buckets else gradients
        base -= 0.0 if later or setup.buckets else float(MASTER * shape.head_params) / setup.shards
        found.append(Moment("backward of the embedding", gathered, base, 0.0, extra, 0.0))
    return found


def _gathered(setup: Setup) -> float:
    """What FSDP brings together: two layers and what is in none, and a layer's gradients.

    The latter are there as they are computed and once more in float32, to be summed.
    """
    if not setup.fsdp:
        return 0.0
    shape = setup.shape
    weights = setup.whole_width * (2 * shape.layer_params + shape.outer_params)
    trained = 0 if setup.adapter else shape.layer_params
    return float(weights + (setup.whole_width + MASTER) * trained)


def _layer_work(setup: Setup, micro: Micro) -> float:
    """What the MLP's backward pass makes beside what is kept."""
    hidden, inner, width = setup.shape.hidden, setup.shape.inner, setup.width
    if setup.adapter and setup.half:  # peft makes a float32 copy of each input
        return float((12 * hidden + 6 * inner) * micro.tokens)
    # gradients of the product of gate and up, and of its two factors; the product is gone
    product = (4 * hidden + 2 * width * inner) * micro.tokens
    if setup.adapter:
        return float(product)
    # before, the weight's gradient of the last product: as it is computed, and in float32
    weight = (MASTER + (width if setup.half else 0)) * hidden * inner
    cast = width * hidden if setup.autocast else 0
    return float(max(product, (4 * hidden + cast + width * inner) * micro.tokens + weight))


def _head(setup: Setup, micro: Micro) -> float:
    """Logits of a chunk, hidden states, and what the products of a chunk leave for a moment."""
    hidden, width, n = setup.shape.hidden, setup.width, micro.loss_tokens
    size = head_chunk(setup, n)
    logits, states = _LOGIT * n * size, width * hidden * n
    if setup.compiled:
        logits = 0 if setup.half else logits  # the gradient takes the product's place
    if not setup.half:
        return float(logits + states)
    cast = width * size * hidden if setup.autocast and not setup.adapter else 0
    return float(logits + width * n * size + states + cast + max(cast, width * hidden * n))


def held_by(setup: Setup) -> Held:
    """What a training GPU holds throughout."""
    shape, width, shards = setup.shape, setup.width, setup.shards
    weights = MASTER * setup.trained + (width * shape.params if setup.adapter else 0)
    # an engine that computes the trainer's model needs a whole one beside shards
    copy = MASTER * shape.params if setup.fsdp and not setup.engine.own_weights else 0
    whole = width * shape.params / shards if setup.reference else 0.0
    if setup.reference and setup.offload:  # its layers come one by one, and not at the worst moment
        whole = float(width * shape.outer_params)
    return Held(
        weights=weights / shards + copy,
        reference=whole,
        optimizer=setup.moments * setup.trained / shards,
        buckets=float(MASTER * setup.trained) if setup.buckets else 0.0,
    )


def memory_of(
    setup: Setup, micros: Iterable[tuple[Micro, bool]] | None = None, reserved: float = RESERVED
) -> Memory:
    """The memory of a GPU that trains.

    Args:
        setup: The run.
        micros: Its micro-batches, each with whether gradients are there before; None for the worst
            that may come.
        reserved: Bytes that are taken by no tensor.
    """
    engine = setup.engine
    if micros is None:
        micros = [(setup.worst_micro(), setup.several_micros)]
    held = held_by(setup)
    every = [m for one, later in micros for m in moments_of(setup, one, later=later)]
    worst = max(every, key=lambda one: one.total)
    beside = engine.memory if engine.shared else 0.0
    if engine.own_weights:
        kv_room = engine.memory - setup.width * setup.shape.params / engine.width - RESERVED
    else:  # the trainer's model generates, beside what is held
        kv_room = setup.card.memory - held.total - reserved
    return Memory(
        held=held,
        worst=worst,
        reserved=reserved,
        engine=beside,
        kv_room=kv_room,
        kv_needed=setup.entry * (setup.prompt + setup.completion) / engine.width,
        training=held.total + worst.total + reserved + (0 if engine.sleeps else beside),
        generating=held.total + beside + reserved,
        card=setup.card.memory,
    )
