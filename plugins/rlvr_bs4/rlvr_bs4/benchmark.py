"""Figures of the benchmark: of the solvers that come with it, and of recorded conversations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rlvr_bs4 import catalog, solvers
from rlvr_bs4.manifest import Entry
from rlvr_bs4.web.environment import Web
from rlvr_bs4.web.replay import Recorded, replay
from rlvr_core.api import DataError, Json, Transcript


@dataclass(frozen=True, slots=True)
class Played:
    """A recorded conversation about a task of the benchmark, and what it is worth."""

    entry: Entry
    transcript: Transcript

    @property
    def row(self) -> dict[str, Json]:
        """What there is to say of it, as JSON."""
        verdict = self.transcript.verdict
        assert verdict is not None
        judged = not self.transcript.failed
        return {
            "problem_id": self.entry.problem,
            "archetype": self.entry.archetype,
            "ended": self.transcript.ended,
            "score": verdict.score if judged else None,
            "passed": verdict.passed if judged else None,
            "parts": dict(verdict.parts),
            "detail": verdict.detail,
        }


def solved(entries: Iterable[Entry], parser: str) -> dict[str, dict[str, float]]:
    """By category: how many tasks, and the shares that reference and bug solvers get right."""
    right: dict[str, list[bool]] = {}
    wrong: dict[str, list[bool]] = {}
    for entry in entries:
        kind, task = catalog.get(entry.archetype), entry.task()
        passed = solvers.run(kind.solve, task, parser).correct
        right.setdefault(kind.category, []).append(passed)
        for bug in kind.bugs.values():
            passed = solvers.run(bug, task, parser).correct
            wrong.setdefault(kind.category, []).append(passed)
    return {
        name: {"tasks": len(done), "reference": fmean(done), "bugs": fmean(wrong[name])}
        for name, done in sorted(right.items())
    }


def played(entries: Sequence[Entry], spoken: Sequence[Recorded], web: Web) -> list[Played]:
    """Play conversations about tasks of the benchmark again, and grade each as a run does.

    Raises:
        DataError: If one of them is about no task of the benchmark.
    """
    known = {entry.problem: entry for entry in entries}
    strange = [one.problem or "no problem" for one in spoken if one.problem not in known]
    if strange:
        raise DataError(
            f"{len(strange)} conversations are about no task of the benchmark: {strange[0]}",
            remedy="bs4/web-bench asks its tasks; rlvr bs4 explain grades others",
        )
    return [
        Played(known[one.problem], replay(known[one.problem].task(), one, web)) for one in spoken
    ]


def by_category(found: Sequence[Played]) -> dict[str, dict[str, float]]:
    """By category: tasks, conversations, and means over those that did not fail."""
    groups: dict[str, list[Played]] = {}
    for one in found:
        groups.setdefault(catalog.get(one.entry.archetype).category, []).append(one)
    return {name: _means(part) for name, part in sorted(groups.items())}


def _means(found: Sequence[Played]) -> dict[str, float]:
    verdicts = [one.transcript.verdict for one in found if not one.transcript.failed]
    passed = [bool(one.passed) for one in verdicts if one is not None]
    scores = [one.score for one in verdicts if one is not None and one.score is not None]
    counted = {"tasks": len({one.entry for one in found}), "conversations": len(found)}
    return counted | ({"accuracy": fmean(passed), "score": fmean(scores)} if passed else {})
