"""The places of rollout actors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from rlvr_cluster.ray.requests import WorkItem

State = Literal["absent", "starting", "started", "loading", "ready"]


@dataclass(eq=False, slots=True)
class Slot:
    """The place of one actor, and the actor that has it.

    Attributes:
        index: Its number among the slots.
        create: Makes an actor there; Ray starts it when its place is free.
        actor: Handle of the actor.
        number: How many actors it has had.
        state: ``started`` waits for weights; ``ready`` holds those of ``ActorPool.weights``.
        where: What its actor said of itself at its start.
        deaths: Actors lost in a row that had answered nothing.
        start_at: When the next one may be started.
        items: What its actor is to answer, by ticket.
    """

    index: int
    create: Callable[[], Any]
    actor: Any = None
    number: int = 0
    state: State = "absent"
    where: dict[str, Any] = field(default_factory=dict)
    deaths: int = 0
    start_at: float = 0.0
    items: dict[int, WorkItem] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"rollout actor {self.index}"

    @property
    def label(self) -> str:
        """Its name, and where its last actor is or was."""
        where = self.where
        return f"{self.name} ({where['host']}, process {where['pid']})" if where else self.name

    @property
    def load(self) -> int:
        """Completions its actor is to answer."""
        return sum(item.n for item in self.items.values())


@dataclass(frozen=True, slots=True)
class Limits:
    """How long actors are waited for, and how often they are replaced.

    Attributes:
        deadline: Seconds for an actor to start, and to load weights.
        restarts: Actors a place may lose in a row before one answers anything, and actors that may
            be lost with the same completion.
        max_in_flight: Completions one actor is asked for at a time.
    """

    deadline: float
    restarts: int
    max_in_flight: int
