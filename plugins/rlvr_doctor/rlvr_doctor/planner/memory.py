"""Computes the memory of one training GPU, by part and at the worst moment of a step.

``moments.py`` computes what a step needs besides the memory that is held throughout. docs/doctor.md
has the formulas and their comparison with measurements.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rlvr_doctor.cards import RESERVED
from rlvr_doctor.planner.moments import Moment, moments_of
from rlvr_doctor.planner.setup import MASTER, Micro, Setup


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes that a training GPU holds throughout a run.

    Attributes:
        weights: Weights, in float32 if they are trained, with an engine's own copy.
        reference: The reference model.
        optimizer: State of the optimizer.
        buckets: Gradient buckets that DDP keeps between steps.
    """

    weights: float
    reference: float
    optimizer: float
    buckets: float

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return self.weights + self.reference + self.optimizer + self.buckets


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one training GPU, and of the engine's.

    Attributes:
        held: Bytes held throughout.
        worst: The worst moment of training.
        reserved: Bytes that belong to no tensor.
        engine: Bytes of a colocated engine while it generates; 0 without one.
        kv_room: Room for the keys and values of completions; below 0 if not even the weights fit.
        kv_needed: Bytes of the keys and values of one completion of maximum length.
        training: Peak of training.
        generating: Peak of a training GPU while its engine generates.
        card: Memory of the card.
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


def held_by(setup: Setup) -> Held:
    """Return what a training GPU holds throughout a run."""
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
    """Compute the memory of a training GPU.

    Args:
        setup: The run.
        micros: Its micro-batches, each with whether earlier gradients exist; None for the worst
            possible one.
        reserved: Bytes that belong to no tensor.
    """
    engine = setup.engine
    if micros is None:
        micros = [(setup.worst_micro(), setup.several_micros)]
    held = held_by(setup)
    every = [m for micro, later in micros for m in moments_of(setup, micro, later=later)]
    worst = max(every, key=lambda moment: moment.total)
    beside = engine.memory if engine.shared else 0.0
    if engine.own_weights:
        kv_room = engine.memory - setup.width * setup.shape.params / engine.width - RESERVED
    else:  # the trainer's model generates, besides the held memory
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
