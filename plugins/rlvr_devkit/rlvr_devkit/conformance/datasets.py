"""Promises of data sets and evaluation tasks: problems, and scores of answers to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

from rlvr_core.api import (
    ChecksProblems,
    Completion,
    ConfigError,
    EvalReport,
    GivesGold,
    Group,
    PluginError,
    Problem,
    SamplingParams,
    config_class,
)
from rlvr_core.toolkit import load_host
from rlvr_devkit.conformance.made import judged
from rlvr_devkit.conformance.subject import Check, Subject, Unchecked, as_json, demand
from rlvr_devkit.conformance.verifiers import judge

_MOST = 60
"""Maximum problems of a data set to check."""


def _problems(subject: Subject, instance: Any = None) -> list[Problem]:
    """Return the first problems of a new instance."""
    instance = subject.build() if instance is None else instance
    problem_stream = instance.problems() if subject.kind == "eval_task" else instance.load()
    problems = list(islice(problem_stream, _MOST))
    demand(bool(problems), "it gives no problem")
    odd = next((problem for problem in problems if not isinstance(problem, Problem)), None)
    demand(odd is None, f"it gives a {type(odd).__name__}, not a Problem")
    return problems


def problems_repeat(subject: Subject) -> None:
    """Check that every call gives the same problems in the same order."""
    instance = subject.build()
    first, second, other = (_problems(subject, source) for source in (instance, instance, None))
    demand(first == second, "a second call gives other problems, or another order")
    demand(first == other, "another instance with the same options gives other problems")


def problems_have_ids(subject: Subject) -> None:
    """Check that every problem has an id, and that ids are unique."""
    seen: dict[str, Problem] = {}
    for problem in _problems(subject):
        demand(bool(problem.id) and isinstance(problem.id, str), f"{problem} has no id")
        demand(problem.id not in seen, f"two problems have the id {problem.id!r}")
        seen[problem.id] = problem


def problems_can_be_written(subject: Subject) -> None:
    """Check that prompts are not empty, and that specs and tags are JSON."""
    for problem in _problems(subject):
        demand(bool(problem.prompt), f"{problem.id} has an empty prompt")
        as_json(dict(problem.spec), f"the spec of {problem.id}")
        as_json(dict(problem.tags), f"the tags of {problem.id}")


def problems_can_be_judged(subject: Subject) -> None:
    """Check that the problems' verifiers accept them, and pass their own gold answers."""
    problems = _problems(subject)[:20]
    verifiers = _verifiers(problems)
    for problem in problems:
        verifier = verifiers[problem.verifier]
        if isinstance(verifier, ChecksProblems):
            verifier.check(problem)
        gold = verifier.gold(problem) if isinstance(verifier, GivesGold) else None
        if gold is not None:
            verdict = judge(verifier, problem, Completion.from_text(gold))
            passed = verdict.passed if verdict.passed is not None else verdict.score
            what = f"{problem.verifier} calls {gold!r} gold and gives {verdict}"
            demand(bool(passed), f"{problem.id}: {what}")


def _verifiers(problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the verifiers that problems name.

    Raises:
        Unchecked: If the plugin of a verifier is not installed.
    """
    host, verifiers = load_host(), {}
    for name in {problem.verifier: None for problem in problems}:
        try:
            component = host.entry("verifier", name).load()
        except PluginError as error:
            raise Unchecked(f"the plugin of verifier '{name}' is not installed: {error}") from None
        except ConfigError as error:
            raise AssertionError(str(error)) from None
        verifiers[name] = component(config_class(component)())
    return verifiers


_PROBLEM_CHECKS: tuple[Check, ...] = (
    Check("repeats", "the same problems in the same order at each call", problems_repeat),
    Check("ids", "every problem has an id of its own", problems_have_ids),
    Check("problems", "prompts are not empty, specs and tags are JSON", problems_can_be_written),
    Check("judged", "their verifier takes them, and passes its gold", problems_can_be_judged),
)

DATASET_CHECKS = _PROBLEM_CHECKS


# -- evaluation tasks ----------------------------------------------------------------------------


def task_is_frozen(subject: Subject) -> None:
    """Check the sampling parameters of the task."""
    task = subject.build()
    demand(isinstance(task.sampling, SamplingParams), "sampling is no SamplingParams")
    demand(isinstance(task.n, int) and task.n >= 1, f"n is {task.n!r}, not 1 or more")
    greedy = task.sampling.temperature == 0 and task.n > 1
    demand(not greedy, f"at temperature 0 all {task.n} answers to a problem are the same: n = 1")


def _groups(task: Any, problems: Sequence[Problem], reward: float) -> list[Group]:
    """Return groups of answers with this reward; right answers are gold answers."""
    verifiers = _verifiers(problems) if reward else {}
    groups = []
    for problem in problems:
        verifier = verifiers.get(problem.verifier)
        text = verifier.gold(problem) if isinstance(verifier, GivesGold) else None
        groups.append(Group(problem, (judged(reward, text or ""),) * task.n, 0))
    return groups


def _scored(task: Any, groups: Sequence[Group]) -> EvalReport:
    report = task.score(groups)
    demand(isinstance(report, EvalReport), f"score gives a {type(report).__name__}, no EvalReport")
    odd = [name for name, value in report.metrics.items() if not math.isfinite(value)]
    demand(not odd, f"{', '.join(odd)}: not finite; leave out what cannot be computed")
    checked: EvalReport = report
    return checked


def task_scores(subject: Subject) -> None:
    """Check that right answers score more than wrong ones."""
    task = subject.build()
    problems = _problems(subject, task)
    best_answers = _groups(task, problems, 1.0)
    right, wrong = _scored(task, best_answers), _scored(task, _groups(task, problems, 0.0))
    if right.metrics == wrong.metrics and not best_answers[0].members[0].completion.text:
        raise Unchecked("it judges texts itself, and no verifier gives a right one")
    demand(right.metrics != wrong.metrics, f"right and wrong answers both score {right.metrics}")
    if "accuracy" in right.metrics:
        best, worst = right.metrics["accuracy"], wrong.metrics.get("accuracy")
        demand((best, worst) == (1.0, 0.0), f"right answers have accuracy {best}, wrong {worst}")


EVAL_TASK_CHECKS: tuple[Check, ...] = (
    *_PROBLEM_CHECKS,
    Check("frozen", "n and sampling say how answers are drawn", task_is_frozen),
    Check("score", "right answers score more than wrong ones", task_scores),
)
