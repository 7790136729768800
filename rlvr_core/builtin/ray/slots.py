"""The places of rollout actors, and what each is asked for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rlvr_core.api import Generation, GenerationRequest
from rlvr_core.builtin.ray.actor import Answers

NODE_DIED = "node has died"
"""What Ray says of an actor whose node is gone."""


@dataclass(eq=False, slots=True)
class PendingRequest:
    """A submitted request and its answers so far, in the order of its seeds."""

    request: GenerationRequest
    future: Future[Answers]
    answers: list[Generation | None]


@dataclass(eq=False, slots=True)
class Share:
    """What one actor is asked at a time: neighbouring completions of one request.

    Attributes:
        pending: The request.
        first: Index of the first completion.
        n: Number of completions.
        lost: Actors that were lost while they had it.
    """

    pending: PendingRequest
    first: int
    n: int
    lost: int = 0

    @property
    def request(self) -> GenerationRequest:
        """The request for these completions alone."""
        whole = self.pending.request
        return replace(whole, seeds=whole.seeds[self.first : self.first + self.n])


State = Literal["absent", "starting", "started", "loading", "ready", "given up"]


@dataclass(eq=False, slots=True)
class Slot:
    """The place of one actor, and the actor that has it.

    Attributes:
        name: Name in messages.
        elastic: Whether it is one beyond the placement group, which may never come.
        create: Makes an actor there; Ray starts it when its place is free.
        actor: Handle of the actor.
        number: How many actors it has had.
        state: ``started`` waits for weights; ``ready`` holds those of ``ActorPool.held``.
        where: What its actor said of itself at its start.
        deaths: Actors lost in a row that had answered nothing.
        due: When the next one may be started.
        shares: What its actor is to answer, by ticket.
    """

    name: str
    elastic: bool
    create: Callable[[], Any]
    actor: Any = None
    number: int = 0
    state: State = "absent"
    where: dict[str, Any] = field(default_factory=dict)
    deaths: int = 0
    due: float = 0.0
    shares: dict[int, Share] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Its name, and where its last actor is or was."""
        where = self.where
        return f"{self.name} ({where['host']}, process {where['pid']})" if where else self.name

    @property
    def load(self) -> int:
        """Completions its actor is to answer."""
        return sum(share.n for share in self.shares.values())


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


def cause_of(error: BaseException) -> str:
    """Why Ray says that an actor is lost, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [
        line for line in lines if " died" in line or "dead because" in line or "Error" in line
    ]
    text = telling[-1] if telling else (lines[0] if lines else type(error).__name__)
    return text.partition(" Some common causes")[0][:300]
