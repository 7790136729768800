"""Running solvers on tasks and grading their answers as any response is graded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

from rlvr_bs4 import catalog
from rlvr_bs4.generate import SEEDS, Split, generate
from rlvr_bs4.grade import Grade, grade
from rlvr_bs4.site import Site
from rlvr_bs4.task import Abstain, SizeName, Task
from rlvr_core.api import Json

Solver = Callable[[Site], Json | Abstain]

_OFTEN = 5
"""Gold responses that are tried as a constant one."""


def response(answer: Json | Abstain) -> str:
    """A solver's result as a final answer."""
    if isinstance(answer, Abstain):
        limit = {"reason": answer.reason, "evidence": answer.evidence}
        return json.dumps({"status": "limit", "answer": None, "limit": limit})
    return json.dumps({"status": "ok", "answer": answer})


def run(solver: Solver, task: Task, parser: str) -> Grade:
    """Grade what a solver answers; one that raises has no answer."""
    site = Site(task, parser)
    try:
        answer = solver(site)
    except (LookupError, ValueError, TypeError, AttributeError, StopIteration) as error:
        return Grade(detail=f"{type(error).__name__}: {error}")
    return grade(task, response(answer), site.visited)


def constant(id: str, n: int, size: SizeName, split: Split, start: int = 0) -> tuple[float, str]:
    """Score one constant response to every page.

    Returns:
        The share of tasks that the best of the most frequent gold responses gets right, and it.
    """
    tasks = [generate(catalog.get(id).id, seed, size) for seed in SEEDS[split][start : start + n]]
    often = [gold for gold, _ in Counter(task.gold for task in tasks).most_common(_OFTEN)]
    return max((sum(grade(task, gold).correct for task in tasks) / n, gold) for gold in often)
