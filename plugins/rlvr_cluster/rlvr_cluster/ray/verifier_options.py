"""The options of a verifier pool on Ray, the places of its actors, and their work."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from rlvr_cluster.ray.messages import Reply
from rlvr_core.api import Completion, ComponentConfig, Problem, Verdict
from rlvr_core.toolkit import VerifierStats

WHERE = "verify.pool.with"
Verdicts = list[dict[str, Verdict]]
Count = Annotated[int, Field(gt=0)]


class RayPoolConfig(ComponentConfig):
    """Where verifiers run; ``verify.workers`` says how many processes each actor has."""

    actors: Count = 1
    """Actors of each training process: one place for each is reserved, in one placement group,
    spread over the nodes."""
    cpus: Annotated[float, Field(gt=0)] | None = None
    """Processors of each actor; null: one for each of ``verify.workers``."""
    address: str | None = None
    """``host:port`` of the cluster's head. null: that of RAY_ADDRESS, else the cluster that
    runs on this machine."""
    restarts: Annotated[int, Field(ge=0)] = 3
    """How often in a row an actor is replaced that has answered nothing."""
    deadline: Annotated[float, Field(gt=0)] = 600
    """Seconds for places to be free and for actors to start."""
    groups: Count = 16
    """Groups one actor is given at a time."""


@dataclass(eq=False, slots=True)
class Group:
    """Completions of one problem that are to be judged.

    Attributes:
        request: Arguments of the actor's ``judge``.
        future: Of their verdicts.
        lost: How many actors were lost with it.
    """

    request: tuple[Problem, Sequence[Completion], tuple[str, ...]]
    future: Future[Verdicts] = field(default_factory=Future)
    lost: int = 0


@dataclass(eq=False, slots=True)
class Place:
    """The place of one actor, and the actor that has it.

    Attributes:
        index: Its bundle in the placement group.
        actor: Handle of the actor; None while there is none.
        number: How many actors it has had.
        ready: Whether its actor can be asked.
        where: What its actor said of itself.
        deaths: Actors lost in a row that had answered nothing.
        start_at: When the next one may be started.
        groups: What its actor is judging.
    """

    index: int
    actor: Any = None
    number: int = 0
    ready: bool = False
    where: str = ""
    deaths: int = 0
    start_at: float = 0.0
    groups: list[Group] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ended:
    """A call of an actor that has ended: its start if there is no group."""

    place: Place
    number: int
    group: Group | None
    result: Future[Reply]


def resolve(future: Future[Any], result: object) -> None:
    """Resolve a future, once, with a result or an error."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)


def joined_stats(parts: Iterable[Mapping[str, VerifierStats]]) -> dict[str, VerifierStats]:
    """Add up what actors count; of latencies the largest counts."""
    joined: dict[str, VerifierStats] = {}
    for part in parts:
        for name, stats in part.items():
            before = joined.get(name, VerifierStats(0, 0.0, 0.0, 0.0, 0, 0, 0))
            joined[name] = VerifierStats(
                stats.calls + before.calls,
                stats.seconds + before.seconds,
                max(stats.p50, before.p50),
                max(stats.p99, before.p99),
                stats.unscorable + before.unscorable,
                stats.timeouts + before.timeouts,
                stats.errors + before.errors,
            )
    return joined
