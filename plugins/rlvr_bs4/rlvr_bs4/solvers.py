"""Running solvers on tasks and grading what they find, as any response is graded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2

from rlvr_bs4 import catalog
from rlvr_bs4.generate import SEEDS, Split, generate
from rlvr_bs4.grade import Grade, grade
from rlvr_bs4.site import Site
from rlvr_bs4.task import Abstain, SizeName, Task
from rlvr_core.api import Json

Solver = Callable[[Site], Json | Abstain]

_OFTEN = 5
"""Gold responses that are tried as a constant one."""


@dataclass(frozen=True, slots=True)
class Score:
    """What an archetype's solvers did.

    Attributes:
        id: The archetype.
        n: Seeds tried.
        right: Full marks of the reference solver, by parser.
        failed: Tasks on which a bug solver got less than half, by bug.
        truths: How many tasks have each truth, the most frequent first.
    """

    id: str
    n: int
    right: dict[str, int]
    failed: dict[str, int]
    truths: tuple[int, ...]

    @property
    def bits(self) -> float:
        """Entropy of the truths: what there is to know at all."""
        return sum(k / self.n * log2(self.n / k) for k in self.truths)

    @property
    def good(self) -> bool:
        """Whether the reference always and the bugs at most once in five are right."""
        bugs = self.failed.values()
        return all(count == self.n for count in self.right.values()) and all(
            failed >= 0.8 * self.n for failed in bugs
        )


def response(answer: Json | Abstain) -> str:
    """What a solver found, written as a final answer."""
    if isinstance(answer, Abstain):
        limit = {"reason": answer.reason, "evidence": answer.evidence}
        return json.dumps({"status": "limit", "answer": None, "limit": limit})
    return json.dumps({"status": "ok", "answer": answer})


def run(solver: Solver, task: Task, parser: str) -> Grade:
    """Let a solver with a bug answer; one that raises has no answer."""
    site = Site(task, parser)
    try:
        answer = solver(site)
    except (LookupError, ValueError, TypeError, AttributeError, StopIteration) as error:
        return Grade(detail=f"{type(error).__name__}: {error}")
    return grade(task, response(answer), site.visited)


def score(
    id: str, n: int, size: SizeName, split: Split, parsers: Sequence[str], start: int = 0
) -> Score:
    """Try all solvers of an archetype on the first seeds of a split."""
    kind = catalog.get(id)
    right, failed = dict.fromkeys(parsers, 0), dict.fromkeys(kind.bugs, 0)
    truths = Counter[str]()
    for seed in SEEDS[split][start : start + n]:
        task = generate(kind.id, seed, size)
        truths[task.gold] += 1
        for parser in parsers:
            right[parser] += run(kind.solve, task, parser).correct
        for name, bug in kind.bugs.items():
            failed[name] += not run(bug, task, parsers[0]).correct
    return Score(kind.id, n, right, failed, tuple(sorted(truths.values(), reverse=True)))


def constant(id: str, n: int, size: SizeName, split: Split, start: int = 0) -> tuple[float, str]:
    """What saying the same thing every time is worth, whatever the page.

    Returns:
        The share of tasks that the best of the most frequent gold responses gets right, and it.
    """
    tasks = [generate(catalog.get(id).id, seed, size) for seed in SEEDS[split][start : start + n]]
    often = [gold for gold, _ in Counter(task.gold for task in tasks).most_common(_OFTEN)]
    return max((sum(grade(task, gold).correct for task in tasks) / n, gold) for gold in often)
