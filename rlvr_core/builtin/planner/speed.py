"""Seconds of a step by phase, from a roofline: products, bytes and launches against the card.

A phase takes the longer of what the device needs and what its launches take. The counts of bytes
and launches are of transformers' eager layers; docs/plan.md says where each comes from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlvr_core.builtin.planner.cards import LAUNCH
from rlvr_core.builtin.planner.setup import Setup
from rlvr_core.builtin.planner.shape import Shape

_FORWARD_LAUNCHES, _BACKWARD_LAUNCHES = 85, 170
"""Kernels of a layer."""
_DECODE_LAUNCHES = 8
"""Kernels of a layer in vLLM, compiled."""
_LOGIT_FORWARD, _LOGIT_BACKWARD = 40, 67
"""Bytes read and written for a logit beside products."""
_UPDATE_BYTES = 40
"""Bytes read and written for a parameter: norm, clipping, AdamW."""
_SEQUENCES = 256
"""Completions that a vLLM generates at a time."""


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
        tokens: Trained tokens per second, all GPUs.
        mfu: 6 FLOPs for each parameter and trained token in the training phases, as a part of the
            peak of the GPUs that train.
        hours: Of the whole run.
        bottleneck: What takes longest.
    """

    generation: float
    scoring: float
    gradient: float
    optimizer: float
    sync: float
    step: float
    tokens: float
    mfu: float
    hours: float
    bottleneck: str


def speed_of(setup: Setup, kv_room: float) -> Speed:
    """Estimate the time of a step of completions of mean length."""
    scoring_passes = int(setup.scored)
    scoring_passes += int(setup.updates > 1)
    scoring = scoring_passes * _forward(setup) + _offloaded(setup)
    again = 1 if setup.checkpointing else 0
    gradient = (1 + again) * _forward(setup, head=False) + _head(setup) + _backward(setup)
    gradient = setup.passes * (gradient + _gathering(setup, 2 + again))
    parameters = setup.trained / setup.shards
    optimizer = setup.updates * _UPDATE_BYTES * parameters / setup.card.attainable
    if not setup.fsdp and setup.trainers > 1:  # gradients are summed over all GPUs: ring
        ring = 2 * 4 * setup.trained * (setup.trainers - 1) / setup.trainers
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
        tokens=tokens / step,
        mfu=model_flops / (training * setup.card.peak * setup.trainers),
        hours=step * setup.steps / 3600,
        bottleneck=max(parts, key=lambda name: parts[name]),
    )


def _products(shape: Shape) -> float:
    """FLOPs of the products of all layers for one token, forward."""
    return 2.0 * shape.layers * shape.layer_params


def _attention(setup: Setup) -> float:
    """FLOPs of attention for one token, forward: half of what lies before it, in the mean."""
    context = setup.mean_prompt + setup.mean_completion / 2
    return 4.0 * setup.shape.layers * setup.shape.queries * context


def _elementwise(shape: Shape) -> float:
    """Bytes that a token reads and writes in all layers beside products, forward."""
    attention = (110 if shape.normed else 60) * (shape.queries + shape.keys)
    return shape.layers * (104.0 * shape.hidden + attention + 10 * shape.inner)


def _forward(setup: Setup, *, head: bool = True) -> float:
    """Seconds of a forward pass over a step's tokens on one GPU."""
    shape, card, tokens = setup.shape, setup.card, setup.step_tokens
    flops = tokens * (_products(shape) + _attention(setup))
    casts = setup.micros * 6 * shape.layers * shape.layer_params
    busy = flops / card.products + (tokens * _elementwise(shape) + casts) / card.attainable
    if head:
        busy += _logits(setup, products=1, moved=_LOGIT_FORWARD)
    return max(busy, setup.micros * shape.layers * _FORWARD_LAUNCHES * LAUNCH)


def _backward(setup: Setup) -> float:
    """Seconds of a backward pass, without the head and without computing anything again."""
    shape, card, tokens = setup.shape, setup.card, setup.step_tokens
    products = 1 if setup.lora else 2
    flops = tokens * (products * _products(shape) + 2.5 * _attention(setup))
    added = setup.micros * 12 * setup.trained / setup.shards
    moved = 2 * tokens * _elementwise(shape) + added
    busy = flops / card.products + moved / card.attainable
    return max(busy, setup.micros * shape.layers * _BACKWARD_LAUNCHES * LAUNCH)


def _head(setup: Setup) -> float:
    """Seconds of the LM head, forward and backward, where its logits are made twice."""
    return _logits(setup, products=3 if setup.lora else 4, moved=_LOGIT_FORWARD + _LOGIT_BACKWARD)


def _logits(setup: Setup, *, products: int, moved: int) -> float:
    shape, card = setup.shape, setup.card
    logits = setup.rows * setup.mean_completion * shape.vocab
    return logits * (2 * products * shape.hidden / card.products + moved / card.attainable)


def _gathering(setup: Setup, times: int) -> float:
    """Seconds that gathering shards and scattering gradients take, as if beside nothing."""
    if not setup.fsdp:
        return 0.0
    share = (setup.shards - 1) / setup.shards
    moved = setup.shape.params * (times * setup.width + 4) * share
    return setup.micros * moved / setup.card.link


def _offloaded(setup: Setup) -> float:
    """Seconds in which an offloaded reference comes, layer by layer, for each micro-batch."""
    if not (setup.reference and setup.offload):
        return 0.0
    return setup.micros * setup.width * setup.shape.params / setup.card.host


def _generation(setup: Setup, kv_room: float) -> float:
    """Seconds until the last completion of a step is there.

    Weights are read once for each token of the longest completions, and once more a token for
    completions that wait for room; every token reads the keys and values before it.
    """
    shape, card = setup.shape, setup.card
    sequences = math.ceil(setup.prompts * setup.n / setup.generators)
    entry = 2 * setup.width * shape.keys * shape.layers
    room = int(kv_room / (entry * (setup.mean_prompt + setup.mean_completion / 2)))
    at_once = min(sequences, _SEQUENCES, max(1, room))
    waiting = (sequences - at_once) * setup.mean_completion / at_once
    rounds = setup.completion + waiting
    tokens = sequences * setup.mean_completion
    context = setup.mean_prompt + setup.mean_completion / 2
    moved = rounds * setup.width * shape.params + tokens * entry * context
    decode = max(
        moved / card.attainable,
        tokens * 2 * shape.params / card.products,
        rounds * shape.layers * _DECODE_LAUNCHES * LAUNCH,
    )
    prompts = math.ceil(sequences / setup.n) * setup.mean_prompt
    return decode + prompts * _products(shape) / card.products


def _sync(setup: Setup) -> float:
    """Seconds to give the engine the weights; a colocated one is also woken."""
    weights = setup.width * setup.shape.params
    if not setup.shared:
        return weights / setup.card.link
    gathered = weights / setup.card.link if setup.fsdp else 0.0
    woken = weights / setup.card.host if setup.sleeps else 0.0
    return gathered + woken + 2 * weights / setup.card.attainable


def checkpoint_bytes(setup: Setup) -> tuple[float, float]:
    """Bytes of one checkpoint, and of all while one more than is kept is being written."""
    model = setup.trained * 4.0 if setup.lora else setup.shape.params * float(setup.width)
    master = 0.0 if setup.lora or setup.width == 4 else 4.0 * setup.trained
    one = model + master + setup.moments * setup.trained
    return one, one * (setup.keep + 1)
