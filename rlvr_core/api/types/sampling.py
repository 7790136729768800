"""What a sampler orders, and what becomes of the groups that come of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlvr_core.api.types.problem import Problem

Fate = Literal[
    "trained",
    "zero_variance",
    "stale",
    "too_long",
    "truncated",
    "unscorable",
    "error",
    "in_flight",
]
"""Where a drawn completion ended; the ledger's columns."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A sampler's order: so many completions of this problem.

    Attributes:
        problem: The problem.
        n: How many completions.
        index: Position of this draw in the run, counted from 0; part of the sampling seed, so
            that a problem met twice under one version gets fresh randomness.
        first: Number of its first completion within the group; not 0 when a group is extended.
    """

    problem: Problem
    n: int
    index: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class Keep:
    """The group is trained on.

    Attributes:
        reads: In how many steps; from the second on it is off-policy.
    """

    reads: int = 1


@dataclass(frozen=True, slots=True)
class Drop:
    """The group is not trained on.

    Attributes:
        fate: The ledger column its completions go to.
        detail: What distinguishes drops of one fate, e.g. ``all_passed`` or ``all_failed``.
    """

    fate: Fate
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Extend:
    """The group needs more completions before it is decided on.

    Attributes:
        n: How many; at least one.
    """

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"a group cannot be extended by {self.n} completions")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a sampler is told of a group that it has decided on.

    Small on purpose: where several processes collect groups, each of them gets all outcomes.

    Attributes:
        index: ``Draw.index``.
        problem_id: The problem.
        successes: Completions that passed.
        failures: Completions that did not; those that could not be judged are neither.
        kept: Whether the group is trained on.
    """

    index: int
    problem_id: str
    successes: int
    failures: int
    kept: bool
