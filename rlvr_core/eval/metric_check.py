"""Checks whether an evaluation will report a metric, before anything is sampled."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rlvr_core.api import Completion, ConfigError, EvalTask, GivesGold, Group, Judged, Problem

if TYPE_CHECKING:
    from rlvr_core.verify.judge import Judge

TRIAL = 16
"""Number of problems to try first; all are tried only if these do not yield the metric."""


def check_metric(
    qualified_metric: str, tasks: Mapping[str, EvalTask], judge: Judge, where: str
) -> None:
    """Refuse a metric that no evaluation reports.

    A task's metrics are known only when it scores something, so it scores gold answers, as far as
    its verifiers provide them, and empty ones.

    Raises:
        ConfigError: If there is none; names the available tasks or metrics.
    """
    name, _, metric = qualified_metric.rpartition(":")
    task = tasks.get(name)
    if task is None:
        raise ConfigError(
            f"no eval task is called '{name}'",
            where=where,
            remedy=f"eval.tasks has: {', '.join(tasks) or 'none'}",
        )
    problems = list(task.problems())
    metrics = _metrics(task, problems[:: max(1, len(problems) // TRIAL)], judge)
    if metric not in metrics:
        metrics = _metrics(task, problems, judge)
    if metric in metrics:
        return
    close = difflib.get_close_matches(metric, metrics, n=3)
    hint = (f"did you mean: {', '.join(close)}?",) if close else ()
    raise ConfigError(
        f"task '{name}' has no metric '{metric}'",
        where=where,
        remedy=(*hint, f"it will have: {', '.join(metrics) or 'none'}"),
    )


def _metrics(task: EvalTask, problems: Sequence[Problem], judge: Judge) -> list[str]:
    """Return the metric names that a task reports for gold and for empty answers."""
    tries = [(p, [_answer(text) for text in (_gold(p, judge), "")]) for p in problems]
    futures = [judge.submit(problem, answers) for problem, answers in tries]
    right, empty = [], []
    for (problem, answers), future in zip(tries, futures, strict=True):
        members = [
            Judged(answer, verdicts, *judge.plan.combine(verdicts, 0))
            for answer, verdicts in zip(answers, future.result(), strict=True)
        ]
        right.append(Group(problem, (members[0],) * task.n, 0))
        empty.append(Group(problem, (members[1],) * task.n, 0))
    names = [*task.score(right).metrics, *task.score(empty).metrics]
    return list(dict.fromkeys(names))


def _gold(problem: Problem, judge: Judge) -> str:
    verifier = judge.plan.verifiers[judge.plan.main_name(problem)]
    return (verifier.gold(problem) if isinstance(verifier, GivesGold) else None) or ""


def _answer(text: str) -> Completion:
    """Build a completion of one token, so that a mean over tokens is not empty."""
    return Completion((), (0,), (0.0,), (True,), text=text, finish_reason="stop")
