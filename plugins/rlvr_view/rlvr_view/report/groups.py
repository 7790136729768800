"""Reads outcomes of groups by step and kind, and samples, from the rollouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

SPANS = 8
"""Number of equal parts of the run from which samples are taken."""
COMPLETIONS = 4
"""Maximum completions shown of a group."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The outcome of one group.

    Attributes:
        step: Number of steps done before it was drawn.
        rate: Share of its completions that passed.
        labels: ``data set`` of the problem, and its tags such as ``level``.
    """

    step: int
    rate: float
    labels: Mapping[str, str]


@dataclass(slots=True)
class Groups:
    """The groups of a run.

    Attributes:
        seen: Outcomes of the groups that were read and judged, oldest first.
        samples: Groups to show, as recorded: from each of ``SPANS`` equal parts of the run, the
            first of each outcome: mixed, right, wrong, not judged.
    """

    seen: list[Seen] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)


def read_groups(rollouts: Iterable[dict[str, Any]], steps: int) -> Groups:
    """Read the groups of a run of ``steps`` steps."""
    groups = Groups()
    chosen: dict[tuple[int, str], dict[str, Any]] = {}
    for row in rollouts:
        step, completions = row.get("step"), row.get("completions")
        if not isinstance(step, int) or not isinstance(completions, list):
            continue
        passed = [row["passed"] for row in _rows(completions) if isinstance(row["passed"], bool)]
        if passed:
            groups.seen.append(Seen(step, fmean(passed), labels_of(row)))
        span = min(SPANS - 1, step * SPANS // max(1, steps))
        chosen.setdefault((span, outcome(row)), row)
    groups.samples = sorted(chosen.values(), key=lambda row: int(row["step"]))
    return groups


def outcome(row: Mapping[str, Any]) -> str:
    """Return a group's outcome: ``mixed``, ``right``, ``wrong`` or ``not judged``."""
    passed = {row["passed"] for row in _rows(row["completions"])} - {None}
    if not passed:
        return "not judged"
    return "mixed" if len(passed) > 1 else "right" if passed.pop() else "wrong"


def shown_completions(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the completions of a group to show: the best and the worst rewarded first."""
    ranked = sorted(_rows(row["completions"]), key=_reward, reverse=True)
    half = COMPLETIONS // 2
    return ranked if len(ranked) <= COMPLETIONS else [*ranked[:half], *ranked[-half:]]


def _rows(completions: list[Any]) -> list[dict[str, Any]]:
    return [
        {"passed": None, **completion} for completion in completions if isinstance(completion, dict)
    ]


def _reward(row: Mapping[str, Any]) -> float:
    reward = row.get("reward")
    return reward if isinstance(reward, int | float) else float("-inf")


def labels_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of a group's problem; lists and other structures are left out."""
    tags = row.get("tags")
    known = {"data set": row.get("dataset"), **(tags if isinstance(tags, dict) else {})}
    return {key: str(value) for key, value in known.items() if isinstance(value, str | int)}
