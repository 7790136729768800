"""An eval task inside a run: sampled by the run's own engine, prompts and verifiers.

The same generator that samples for training samples here, so that a prompt can not differ between
the two (T38).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr_core.api import (
    Completion,
    ConfigError,
    Draw,
    EvalReport,
    Group,
    Judged,
    Problem,
    RunError,
)

if TYPE_CHECKING:
    from rlvr_core.api import EvalTask
    from rlvr_core.api.rollouts import Sampled
    from rlvr_core.rollout.collect import Generator
    from rlvr_core.verify.judge import Judge

TRIAL = 16
"""Problems that are tried first; all of them only if the metric does not show in these."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A finished evaluation.

    Attributes:
        name: Full name of the task.
        temperature: It sampled at.
        report: Its metrics.
        sampled: Every judged group, in the task's order.
    """

    name: str
    temperature: float
    report: EvalReport
    sampled: list[Sampled]


@dataclass(frozen=True, slots=True)
class NamedTask:
    """An eval task and the name it goes by in records."""

    name: str
    task: EvalTask


def evaluate(named: NamedTask, generator: Generator, *, version: int, step: int) -> Evaluation:
    """Sample, judge and score the task's problems under the engine's current weights."""
    task = named.task
    draws = [Draw(problem, task.n, index) for index, problem in enumerate(task.problems())]
    sampled = generator.generate(draws, task.sampling, version=version, step=step)
    report = task.score([one.group for one in sampled])
    return Evaluation(named.name, task.sampling.temperature, report, sampled)


def check_metric(wanted: str, tasks: Sequence[NamedTask], judge: Judge, where: str) -> None:
    """Refuse a metric that no evaluation will have.

    Which metrics a task has shows only when it scores something. So it is given gold answers, as
    far as its verifiers know them, and empty ones.

    Raises:
        ConfigError: Naming the tasks, or the metrics, that there will be.
    """
    task, _, metric = wanted.rpartition(":")
    named = next((one for one in tasks if one.name == task), None)
    if named is None:
        raise ConfigError(
            f"no eval task is called '{task}'",
            where=where,
            remedy=f"eval.tasks has: {', '.join(one.name for one in tasks) or 'none'}",
        )
    problems = list(named.task.problems())
    metrics = _metrics(named, problems[:: max(1, len(problems) // TRIAL)], judge)
    if metric not in metrics:
        metrics = _metrics(named, problems, judge)
    if metric in metrics:
        return
    raise ConfigError(
        f"task '{task}' has no metric '{metric}'",
        where=where,
        remedy=f"it will have: {', '.join(metrics) or 'none'}",
    )


def value_of(wanted: str, found: Evaluation, where: str) -> float | None:
    """The metric's value in an evaluation; None if that is one of another task.

    Raises:
        RunError: If the evaluation lacks the metric.
    """
    task, _, metric = wanted.rpartition(":")
    if found.name != task:
        return None
    value = found.report.metrics.get(metric)
    if value is None:
        raise RunError(
            f"task '{task}' has no metric '{metric}' this time",
            where=where,
            remedy=f"it has: {', '.join(found.report.metrics)}",
        )
    return value


def _metrics(named: NamedTask, problems: Sequence[Problem], judge: Judge) -> list[str]:
    """Names of the metrics on gold answers and on empty ones."""
    tries = [(p, [_answer(text) for text in (_gold(p, judge), "")]) for p in problems]
    futures = [judge.submit(problem, answers) for problem, answers in tries]
    right, empty = [], []
    for (problem, answers), future in zip(tries, futures, strict=True):
        members = [
            Judged(answer, verdicts, *judge.plan.combine(verdicts, 0))
            for answer, verdicts in zip(answers, future.result(), strict=True)
        ]
        right.append(Group(problem, (members[0],) * named.task.n, 0))
        empty.append(Group(problem, (members[1],) * named.task.n, 0))
    found = [*named.task.score(right).metrics, *named.task.score(empty).metrics]
    return list(dict.fromkeys(found))


def _gold(problem: Problem, judge: Judge) -> str:
    gold = getattr(judge.plan.verifiers[judge.plan.main_name(problem)], "gold", None)
    return (gold(problem) if gold else None) or ""


def _answer(text: str) -> Completion:
    """A completion of one token, so that a mean over tokens has something to be one of."""
    return Completion((), (0,), (0.0,), (True,), text=text, finish_reason="stop")
