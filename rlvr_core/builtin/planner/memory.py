"""Bytes of one training GPU, by part and at the worst moment of a step.

Counted operation by operation as rlvr and transformers compute a layer of Qwen3 in autocast:
what autograd keeps, and what is made and freed on the way; docs/plan.md has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_core.builtin.planner.cards import RESERVED
from rlvr_core.builtin.planner.setup import Micro, Setup
from rlvr_core.builtin.planner.shape import Shape

LOGITS = 512 << 20
"""Bytes of one chunk of float32 logits, as ``rlvr_core/step/logprobs.py`` has it on a GPU."""
_LEAST_CHUNK = 256
_MASTER = 4


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one training GPU.

    Attributes:
        master: Weights, in float32 where they are trained.
        compute: Layers that FSDP has gathered.
        reference: The reference model.
        optimizer: State of the optimizer.
        gradients: All of them.
        activations: What autograd keeps of the worst micro-batch.
        head: Logits and gradients of the LM head at the worst moment.
        work: What else is alive at the worst moment.
        peak: The most at a time: training, or generation where that takes more.
        at_rest: Between steps, without the engine.
        engine: Share of a colocated engine; it counts in the peak of generation.
        kv_room: Room for the KV cache on a GPU that generates; below 0 the weights do not fit.
        left: Free at the peak.
        moment: When the peak is.
    """

    master: float
    compute: float
    reference: float
    optimizer: float
    gradients: float
    activations: float
    head: float
    work: float
    peak: float
    at_rest: float
    engine: float
    kv_room: float
    left: float
    moment: str


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of the step, in bytes on top of what is there between steps."""

    name: str
    gradients: float
    activations: float
    head: float
    work: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.gradients + self.activations + self.head + self.work


def saved_by_layer(setup: Setup, micro: Micro) -> float:
    """Bytes that autograd keeps of one layer without checkpointing.

    In half precision a token costs 26 H for two norms, their casts and the residual stream, 10 Q
    and 6 K for normalised queries and keys and the output, 4 K for each key and value that
    attention gathers, 8 I for the MLP, and float32 statistics; each weight is kept cast.
    """
    shape, half = setup.shape, setup.width == 2
    hidden, queries, keys = shape.hidden, shape.queries, shape.keys
    statistics = 4 * (2 + shape.heads)
    if half:
        token = 26 * hidden + 4 * queries + 8 * shape.inner
        token += (6 * queries + 6 * keys) if shape.normed else 0
    else:
        token = 24 * hidden + 8 * queries + 16 * shape.inner
        token += (8 * queries + 8 * keys) if shape.normed else 0
    if shape.normed:
        statistics += 4 * (shape.heads + shape.kv_heads)
    cast = 0 if setup.lora or setup.fsdp or not half else setup.width * shape.layer_params
    gathered = 2 * setup.width * keys * micro.keys
    return float((token + statistics) * micro.tokens + gathered + cast)


def _residual(shape: Shape, micro: Micro) -> float:
    """The float32 residual stream that enters a layer."""
    return 4.0 * shape.hidden * micro.tokens


def _chunk(shape: Shape, micro: Micro) -> tuple[int, float]:
    """Entries of a chunk of the vocabulary, and bytes of its float32 logits."""
    most = max(_LEAST_CHUNK, LOGITS // (4 * max(1, micro.loss_tokens)))
    size = math.ceil(shape.vocab / math.ceil(shape.vocab / most))
    return size, 4.0 * micro.loss_tokens * size


def moments_of(setup: Setup, micro: Micro, *, gathered_before: bool) -> Sequence[Moment]:
    """The moments of a backward pass that may be the worst.

    Args:
        setup: The run.
        micro: The micro-batch.
        gathered_before: Whether gradients of an earlier micro-batch are there.
    """
    shape, width = setup.shape, setup.width
    everything = float(_MASTER * setup.trained) / setup.shards
    before = everything if gathered_before else 0.0
    layer = saved_by_layer(setup, micro)
    residual = _residual(shape, micro)
    held = (residual if setup.checkpointing else layer) * shape.layers
    rotary = 8.0 * shape.head_dim * micro.tokens
    last = 2 * residual
    size, logits = _chunk(shape, micro)
    narrow = 0.0 if width == 4 else width * micro.loss_tokens * size
    states = width * shape.hidden * micro.loss_tokens
    head_grad = 0.0 if setup.lora else float(_MASTER * shape.head_params)
    weights = (1 if setup.lora else 2) * width * size * shape.hidden
    head = Moment(
        "backward of the LM head",
        before,
        held + rotary + last,
        logits + narrow + states + head_grad + weights,
        4.0 * shape.hidden * micro.loss_tokens,
    )
    # gradients of the head wait for the embedding's where both are one tensor
    waiting = head_grad if shape.tied or not gathered_before else 0.0
    again = layer - residual if setup.checkpointing else 0.0
    inside = Moment(
        "backward of the last layer",
        before,
        held + again + rotary,
        waiting,
        (6 * shape.hidden + 6 * shape.inner) * micro.tokens,
    )
    found = [head, inside]
    if not setup.lora:
        table = float(_MASTER * shape.head_params)
        # head's, embedding's and their sum; the sum is the gradient itself where none was before
        extra = 3 * table if shape.tied else table
        base = everything if gathered_before else everything - table / setup.shards
        found.append(Moment("backward of the embedding", base, 0.0, extra, 0.0))
    return found


def weights_of(setup: Setup) -> tuple[float, float, float, float]:
    """Bytes of master weights, what FSDP gathers, reference and optimizer."""
    shape, width, shards = setup.shape, setup.width, setup.shards
    master = float(_MASTER * setup.trained)
    if setup.lora:
        master += width * shape.params
    gathered = 0.0
    if setup.fsdp:
        gathered = float(width * (2 * shape.layer_params + shape.outer_params))
    reference = 0.0
    if setup.reference:
        whole = width * shape.params / shards
        some = width * (2 * shape.layer_params + shape.outer_params)
        reference = float(min(whole, some) if setup.offload else whole)
    return master / shards, gathered, reference, setup.moments * setup.trained / shards


def memory_of(
    setup: Setup, micros: Sequence[tuple[Micro, bool]] | None = None, reserved: float = RESERVED
) -> Memory:
    """The memory of a GPU that trains.

    Args:
        setup: The run.
        micros: Its micro-batches, each with whether gradients are there before; None for the worst
            that may come.
        reserved: Bytes that are taken by no tensor.
    """
    if micros is None:
        later = setup.rows * (setup.completion + setup.prompt / setup.n) > setup.budget
        micros = [(setup.worst_micro(), later)]
    master, gathered, reference, optimizer = weights_of(setup)
    at_rest = master + reference + optimizer
    every = [m for one, later in micros for m in moments_of(setup, one, gathered_before=later)]
    worst = max(every, key=lambda one: one.total)
    training = at_rest + gathered + worst.total + reserved
    engine = setup.share * setup.card.memory if setup.shared else 0.0
    weights = setup.width * setup.shape.params
    kv_room = setup.share * setup.card.memory - weights - RESERVED
    moment, peak = worst.name, training
    if engine and not setup.sleeps:
        moment, peak = f"{moment}, beside the engine", training + engine
    elif at_rest + engine + reserved > training:
        moment, peak = "generation", at_rest + engine + reserved
    return Memory(
        master=master,
        compute=gathered,
        reference=reference,
        optimizer=optimizer,
        gradients=worst.gradients,
        activations=worst.activations,
        head=worst.head,
        work=worst.work + reserved,
        peak=peak,
        at_rest=at_rest,
        engine=engine,
        kv_room=kv_room,
        left=setup.card.memory - peak,
        moment=moment,
    )
