"""The slots of rollout actors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from rlvr_cluster.ray.requests import WorkItem

State = Literal["absent", "starting", "started", "loading", "ready"]


@dataclass(eq=False, slots=True)
class Slot:
    """The place of one actor on the cluster, and its current actor.

    Attributes:
        index: Number of the slot.
        create: Creates an actor in the slot; Ray starts it when its resources are free.
        actor: Handle of the actor.
        number: Number of actors that the slot has had.
        state: ``started`` waits for weights; ``ready`` holds the current weights.
        where: Node, host and process id of the last actor.
        deaths: Number of actors lost in a row without an answer.
        start_at: Time from which the next one may be started.
        items: Unanswered work of the actor, by ticket.
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
        """Name of the slot in messages."""
        return f"rollout actor {self.index}"

    @property
    def label(self) -> str:
        """Name of the slot, with host and process of its last actor."""
        where = self.where
        return f"{self.name} ({where['host']}, process {where['pid']})" if where else self.name

    @property
    def load(self) -> int:
        """Number of completions that the actor has yet to answer."""
        return sum(item.n for item in self.items.values())


@dataclass(frozen=True, slots=True)
class Limits:
    """The time limits of actors, and how often they are replaced.

    Attributes:
        deadline: Seconds for an actor to start, and to load weights.
        restarts: Number of actors that a slot may lose in a row without an answer, and that may be
            lost with the same completion.
        max_in_flight: Largest number of completions requested from one actor at a time.
    """

    deadline: float
    restarts: int
    max_in_flight: int
