"""Computes the seconds of a step by phase from a roofline of FLOPs, bytes and kernel launches.

A phase takes as long as the device computes or as its launches take, whichever is longer. The
counts are those of transformers' eager layers; docs/doctor.md explains where each comes from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rlvr_doctor.cards import LAUNCH
from rlvr_doctor.planner.moments import head_chunk
from rlvr_doctor.planner.setup import MASTER, Setup
from rlvr_doctor.planner.shape import Shape

_FORWARD_LAUNCHES, _BACKWARD_LAUNCHES = 68, 150
"""Kernels of a layer without an adapter, as counted by the simulated GPU."""
_DECODE_LAUNCHES = 8
"""Kernels of a layer in vLLM, compiled."""
_LOGIT_FORWARD, _LOGIT_BACKWARD = 40, 67
"""Bytes read and written for a logit, besides products."""
_COMPILED_LOGIT_FORWARD, _COMPILED_LOGIT_BACKWARD = 10, 24
"""As above, for a compiled head: the bytes that an H200 moves in the time of its kernels."""
_COMPILED = 0.36
"""Element-wise bytes of compiled layers as a share of those of eager ones, on an H200."""
_UPDATE_BYTES = 40
"""Bytes read and written for a parameter: norm, clipping, AdamW."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds of a step, and what follows from them.

    Attributes:
        generation: Prefill and decoding.
        scoring: Log-probs of a reference, and old log-probs where a step makes several updates.
        gradient: Forward and backward passes.
        optimizer: Updates.
        sync: Weights to the engine; with a colocated one also waking it.
        step: A whole step.
        flops: FLOPs of one GPU in a step, generation aside.
        tokens: Trained tokens per second, all GPUs.
        mfu: 6 FLOPs for each parameter and trained token in the training phases, as a part of the
            peak of the GPUs that train.
        hours: Hours of the whole run.
        bottleneck: The longest phase.
    """

    generation: float
    scoring: float
    gradient: float
    optimizer: float
    sync: float
    step: float
    flops: float
    tokens: float
    mfu: float
    hours: float
    bottleneck: str


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a GPU.

    Attributes:
        flops: FLOPs of products.
        moved: Bytes read and written besides products.
        launches: Kernel launches of layers.
    """

    flops: float = 0.0
    moved: float = 0.0
    launches: float = 0.0

    def __add__(self, other: Work) -> Work:
        """Return the sum of two amounts of work."""
        return Work(
            self.flops + other.flops, self.moved + other.moved, self.launches + other.launches
        )

    def times(self, often: float) -> Work:
        """Return the work of several repetitions."""
        return Work(often * self.flops, often * self.moved, often * self.launches)

    def seconds(self, setup: Setup) -> float:
        """Return the longer of what the device needs and what its launches take."""
        busy = self.flops / setup.card.products(half=setup.half)
        return max(busy + self.moved / setup.card.elementwise, self.launches * LAUNCH)


def speed_of(setup: Setup, kv_room: float) -> Speed:
    """Estimate the time of a step of completions of mean length."""
    scoring_work = scoring_of(setup)
    scored = int(setup.scored) + int(setup.updates > 1)
    scoring = scoring_work.seconds(setup) + _offloaded(setup) + scored * _exchange(setup, 1)
    gradient_work = gradient_of(setup)
    again = setup.recomputed / setup.shape.layers
    sent = _gathering(setup, 2 + again) + _exchange(setup, 1 + again + MASTER / setup.width)
    gradient = gradient_work.seconds(setup) + setup.passes * sent
    parameters = setup.trained / setup.shards
    optimizer = setup.updates * _UPDATE_BYTES * parameters / setup.card.attainable
    if setup.buckets:  # gradients are summed over all GPUs: ring
        ring = 2 * MASTER * setup.trained * (setup.trainers - 1) / setup.trainers
        optimizer += setup.updates * ring / setup.card.link
    generation = _generation(setup, kv_room)
    sync = _sync(setup)
    training = scoring + gradient + optimizer
    together = max(generation, training) if setup.overlapped else generation + training
    step = together + sync
    tokens = setup.passes * setup.step_tokens * setup.trainers
    model_flops = 6 * setup.shape.params * tokens
    parts = {
        "generation": generation,
        "log-probs and reference": scoring,
        "forward and backward": gradient,
        "optimizer": optimizer,
        "weight sync": sync,
    }
    return Speed(
        generation=generation,
        scoring=scoring,
        gradient=gradient,
        optimizer=optimizer,
        sync=sync,
        step=step,
        flops=scoring_work.flops + gradient_work.flops,
        tokens=tokens / step,
        mfu=model_flops / (training * setup.card.peak * setup.trainers),
        hours=step * setup.steps / 3600,
        bottleneck=max(parts, key=lambda name: parts[name]),
    )


def scoring_of(setup: Setup) -> Work:
    """Forward passes for log-probs: of a reference, and old ones where there are more updates."""
    # a reference that is a model of its own is not compiled
    reference = setup if setup.adapter else replace(setup, compiled=False)
    return _scored(reference).times(int(setup.scored)) + _scored(setup).times(setup.updates > 1)


def _scored(setup: Setup) -> Work:
    moved = _COMPILED_LOGIT_FORWARD if setup.compiled else _LOGIT_FORWARD
    return _forward(setup) + _logits(setup, 1, moved)


def gradient_of(setup: Setup) -> Work:
    """Forward and backward passes of a step; logits are made twice, but a chunk that is kept."""
    products, moved, kept = 3 if setup.adapter else 4, _LOGIT_FORWARD + _LOGIT_BACKWARD, 0.0
    if setup.compiled:
        moved = _COMPILED_LOGIT_FORWARD + _COMPILED_LOGIT_BACKWARD
        loss_tokens = math.ceil(setup.loss_tokens / setup.micros)
        kept = head_chunk(setup, loss_tokens) / setup.shape.vocab
    head = _logits(setup, products - kept, moved)
    work = _forward(setup) + _backward(setup) + head
    if setup.recomputed:
        shape = setup.shape
        share = setup.recomputed / shape.layers
        again = _forward(setup).times(share)
        # up to the last product, behind which nothing is kept; that of peft is beside an adapter's
        spared = 0.0 if setup.adapter else 2.0 * setup.recomputed * shape.hidden * shape.inner
        flops = again.flops - setup.step_tokens * spared
        work += Work(flops, again.moved, again.launches)
    return work.times(setup.passes)


def _products(shape: Shape) -> float:
    """Return the FLOPs of the products of all layers for one token, forward."""
    return 2.0 * shape.layers * shape.layer_params


def _attention(setup: Setup) -> float:
    """Return the FLOPs of attention for one token, forward; it sees half of its row on average."""
    rows, prompt, mean = setup.rows, setup.mean_prompt, setup.mean_completion
    pairs = rows * mean * (prompt + mean / 2) + rows / setup.n * prompt * prompt / 2
    tokens = setup.step_tokens * setup.split
    return 4.0 * setup.shape.layers * setup.shape.queries * pairs / tokens


def _elementwise(setup: Setup) -> float:
    """Return the bytes that a token reads and writes in all layers beside products, forward."""
    shape = setup.shape
    attention = (110 if shape.normed else 60) * (shape.queries + shape.keys)
    eager = shape.layers * (104.0 * shape.hidden + attention + 10 * shape.inner)
    return _COMPILED * eager if setup.compiled else eager


def _forward(setup: Setup) -> Work:
    """Return the work of a forward pass of all layers over a step's tokens on one GPU."""
    shape, tokens = setup.shape, setup.step_tokens
    adapter = 2.0 * setup.trained if setup.adapter else 0.0
    casts = setup.micros * 6 * shape.layers * shape.layer_params if setup.autocast else 0
    return Work(
        tokens * (_products(shape) + adapter + _attention(setup)),
        tokens * _elementwise(setup) + casts,
        setup.micros * shape.layers * _FORWARD_LAUNCHES,
    )


def _backward(setup: Setup) -> Work:
    """Return the work of a backward pass of all layers, without recomputation."""
    shape, tokens = setup.shape, setup.step_tokens
    products = _products(shape) if setup.adapter else 2 * _products(shape)
    adapter = 4.0 * setup.trained if setup.adapter else 0.0
    added = setup.micros * 12 * setup.trained / setup.shards
    return Work(
        tokens * (products + adapter + 2.5 * _attention(setup)),
        2 * tokens * _elementwise(setup) + added,
        setup.micros * shape.layers * _BACKWARD_LAUNCHES,
    )


def _logits(setup: Setup, products: float, moved: int) -> Work:
    logits = setup.loss_tokens * setup.shape.vocab
    return Work(logits * 2 * products * setup.shape.hidden, logits * moved)


def _gathering(setup: Setup, times: float) -> float:
    """Return the seconds for gathering shards and scattering gradients, without overlap."""
    if not setup.fsdp:
        return 0.0
    share = (setup.shards - 1) / setup.shards
    moved = setup.shape.params * (times * setup.whole_width + MASTER) * share
    copies = setup.trainers / setup.shards  # each has a gradient, to be summed with the others'
    moved += 2 * MASTER * setup.shape.params / setup.shards * (copies - 1) / copies
    return setup.micros * moved / setup.card.link


def _exchange(setup: Setup, times: float) -> float:
    """Return the seconds in which GPUs that split rows exchange keys and values.

    Args:
        setup: The run.
        times: How often; the gradients of both go back in float32.
    """
    return times * setup.step_tokens * (setup.split - 1) * setup.entry / setup.card.link


def _offloaded(setup: Setup) -> float:
    """Return the seconds in which an offloaded reference is copied, for each micro-batch."""
    if not (setup.reference and setup.offload):
        return 0.0
    return setup.micros * setup.width * setup.shape.params / setup.card.host


def _generation(setup: Setup, kv_room: float) -> float:
    """Return the seconds until the last completion of a step is finished.

    Weights are read once for each token of the longest completions, and once more a token for
    completions that wait for room; every token reads the keys and values before it. The GPUs of
    one engine share all of it out evenly, and talk to each other in no time.
    """
    shape, card, engine = setup.shape, setup.card, setup.engine
    engines = engine.gpus / engine.width
    sequences = math.ceil(setup.prompts * setup.n / engines)
    context = setup.mean_prompt + setup.mean_completion / 2
    room = int(kv_room * engine.width / (setup.entry * context))
    at_once = min(sequences, engine.at_once, max(1, room))
    waiting = (sequences - at_once) * setup.mean_completion / at_once
    rounds = setup.completion + waiting
    tokens = sequences * setup.mean_completion
    moved = rounds * setup.width * shape.params + tokens * setup.entry * context
    products = card.products(half=setup.half) * engine.width
    decode = max(
        moved / (card.attainable * engine.width),
        tokens * 2 * shape.params / products,
        rounds * shape.layers * _DECODE_LAUNCHES * LAUNCH,
    )
    prompts = math.ceil(sequences / setup.n) * setup.mean_prompt
    return decode + prompts * _products(shape) / products


def _sync(setup: Setup) -> float:
    """Return the seconds to give the engine the weights, and to wake it if it slept."""
    engine, card = setup.engine, setup.card
    weights = setup.width * setup.shape.params
    if engine.by_host:
        return 2 * weights / card.host
    if not engine.shared:
        return weights / card.link
    gathered = weights / card.link if setup.fsdp else 0.0
    if not engine.own_weights:
        return gathered
    swapped = 2 * weights / engine.width / card.host if engine.swaps else 0.0
    return gathered + swapped + 2 * weights / card.attainable


def checkpoint_bytes(setup: Setup) -> float:
    """Return the bytes of one checkpoint."""
    model = setup.trained * 4.0 if setup.adapter else setup.shape.params * float(setup.width)
    master = 0.0 if setup.adapter or not setup.half else float(MASTER) * setup.trained
    return model + master + setup.moments * setup.trained
