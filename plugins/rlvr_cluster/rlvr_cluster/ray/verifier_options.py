"""The options of a verifier pool on Ray, and the records of its actors and their work."""

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
    """Processors of each actor; null for one for each of ``verify.workers``."""
    address: str | None = None
    """``host:port`` of the cluster's head; null for RAY_ADDRESS, or else for the cluster on this
    machine."""
    restarts: Annotated[int, Field(ge=0)] = 3
    """How often in a row an actor that has answered nothing is replaced."""
    deadline: Annotated[float, Field(gt=0)] = 600
    """Seconds for resources to become free and for actors to start."""
    groups: Count = 16
    """Largest number of groups that one actor has at a time."""


@dataclass(eq=False, slots=True)
class Group:
    """Completions of one problem to judge.

    Attributes:
        request: Arguments of the actor's ``judge``.
        future: Future of their verdicts.
        lost: Number of actors that were lost with it.
    """

    request: tuple[Problem, Sequence[Completion], tuple[str, ...]]
    future: Future[Verdicts] = field(default_factory=Future)
    lost: int = 0


@dataclass(eq=False, slots=True)
class Place:
    """The place of one actor on the cluster, and its current actor.

    Attributes:
        index: Index of its bundle in the placement group.
        actor: Handle of the actor; None while there is none.
        number: Number of actors that the place has had.
        ready: Whether the actor accepts groups.
        where: Host and process of the last actor.
        deaths: Number of actors lost in a row without an answer.
        start_at: Time from which the next one may be started.
        groups: The groups that the actor is judging.
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
    """A finished call of an actor; without a group, it is the actor's start."""

    place: Place
    number: int
    group: Group | None
    result: Future[Reply]


def resolve(future: Future[Any], result: object) -> None:
    """Resolve a future with a result or an error, unless it is resolved already."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)


def joined_stats(parts: Iterable[Mapping[str, VerifierStats]]) -> dict[str, VerifierStats]:
    """Add up the actors' counts, and take the largest of their latencies."""
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
