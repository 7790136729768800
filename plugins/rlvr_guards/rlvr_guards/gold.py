"""Before a run, gold answers must get full score and non-answers none (T39, T60).

Each pair of data set and verifier is tried on a few problems, in the worker pool that will judge
the run: with the gold answer, with an empty answer, with the gold answer of another problem, and
with wrong ones made of it. A pair whose verifier cannot produce a gold response is skipped.
"""

from __future__ import annotations

import inspect
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    Completion,
    GivesGold,
    PluginError,
    Problem,
    RlvrError,
    RunError,
    Verdict,
)
from rlvr_core.api.progress import counting
from rlvr_core.verify.reward import outcome
from rlvr_guards.wrong_answers import wrong_responses

if TYPE_CHECKING:
    from rlvr_core.api import Json
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.verify.judge import Judge

SAMPLE = 16
"""Number of problems tried per pair."""

TRIED, KINDS = 4, 8
"""Problems of a pair on which wrong answers are tried, and how many on each."""

MAX_FOREIGN = 0.5
"""Largest share of problems for which another problem's gold answer may pass: differently written
answers can be equivalent, but a verifier that passes most of them checks nothing."""

Submit = Callable[[Problem, Sequence[Completion]], Future[list[dict[str, Verdict]]]]


@dataclass(frozen=True, slots=True)
class GoldReport:
    """What the guard checked.

    Attributes:
        checked: Number of gold answers judged, by ``dataset with verifier``.
        unknown: Pairs whose verifier has ``gold``, and no answer by it.
        silent: Number of empty answers that got no score, by pair, where most got none.
        lax: Kinds of wrong answers that most problems pass, by pair, where there are some.
    """

    checked: Mapping[str, int]
    unknown: tuple[str, ...]
    silent: Mapping[str, int] = field(default_factory=dict)
    lax: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def gold_lines(problems: Sequence[Problem], judge: Judge, resolved: Resolved) -> list[str]:
    """Check a run's verifiers, and describe what was checked.

    Raises:
        RunError: See ``check``.
    """
    config, plan = resolved.config, judge.plan
    report = check(
        problems,
        plan.main_name,
        plan.verifiers,
        judge.submit,
        seed=config.run.seed,
        # a worker may have to start, then take its full time for each of the two answers
        timeout=min(60.0 + 2 * SAMPLE * config.verify.timeout, config.run.timeout),
        options={name: spec.config for name, spec in plan.specs.items()},
    )
    lines = [f"gold: {n} answers of {pair} judged right" for pair, n in report.checked.items()]
    lines += [f"gold: {pair} offers no gold answers to check" for pair in report.unknown]
    lines += [
        f"warning: guard preflight: {pair} passes wrong answers: {', '.join(kinds)}; the policy "
        "will learn to give them"
        for pair, kinds in report.lax.items()
    ]
    return lines + [
        f"warning: guard preflight: {pair} gives no score to {n} of {report.checked[pair]} empty "
        "answers: what cannot be read has no reward in the place of a low one, is left out of "
        "training, and costs the policy nothing; a verifier that finds no answer should fail it"
        for pair, n in report.silent.items()
    ]


def check(
    problems: Sequence[Problem],
    name_of: Callable[[Problem], str],
    verifiers: Mapping[str, Any],
    submit: Submit,
    *,
    seed: int,
    timeout: float,
    options: Mapping[str, Mapping[str, Json]] | None = None,
) -> GoldReport:
    """Judge gold answers, empty answers, and gold answers of other problems.

    Args:
        problems: All problems of the run.
        name_of: Returns the full name of the verifier that decides a problem's outcome.
        verifiers: Verifier instances by full name, for ``gold``.
        submit: Submits completions of a problem to the pool.
        seed: Seed for the choice of problems.
        timeout: Seconds to wait for each answer.
        options: Options of the verifiers by full name.

    Raises:
        RunError: If a check fails; names the problems whose gold answer failed or whose empty
            answer passed, or the pair that passes answers to other problems. Also if verdicts do
            not come.
    """
    pairs: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        pairs.setdefault((problem.dataset, name_of(problem)), []).append(problem)
    checked: dict[str, int] = {}
    unknown: list[str] = []
    faults: list[str] = []
    silent: dict[str, int] = {}
    lax: dict[str, tuple[str, ...]] = {}
    for (dataset, name), members in sorted(pairs.items()):
        label = f"{dataset} with {name}"
        verifier = verifiers[name]
        if not isinstance(verifier, GivesGold):  # a length has no reference: nothing to say
            continue
        chosen = random.Random(f"{seed}:{label}").sample(members, min(SAMPLE, len(members)))
        answers = _gold(verifier, chosen)
        if not answers:
            unknown.append(label)
            continue
        others = _answers_of_others([answer for _, answer in answers])
        tries = [
            (
                problem,
                answer,
                submit(problem, [Completion.from_text(t) for t in (answer, "", *other)]),
            )
            for (problem, answer), other in zip(answers, others, strict=True)
        ]
        foreign: list[bool] = []
        unscored = 0
        for problem, answer, future in counting("gold answers", tries, len(tries)):
            right, empty, *other = (verdicts[name] for verdicts in _await(future, problem, timeout))
            faults.extend(_faults(problem, answer, right, empty, name))
            foreign.extend(bool(outcome(verdict)) for verdict in other)
            unscored += empty.status == "unscorable"
        if sum(foreign) > MAX_FOREIGN * len(foreign):
            faults.append(
                f"{label}: {sum(foreign)} of {len(foreign)} problems are passed by the gold answer "
                f"of another problem"
            )
        if 2 * unscored > len(tries):
            silent[label] = unscored
        checked[label] = len(tries)
        if kinds := _passed_kinds(answers, name, submit, timeout, (options or {}).get(name, {})):
            lax[label] = kinds
    if faults:
        raise _report(faults)
    return GoldReport(checked, tuple(unknown), silent, lax)


def _passed_kinds(
    answers: Sequence[tuple[Problem, str]],
    name: str,
    submit: Submit,
    timeout: float,
    options: Mapping[str, Json],
) -> tuple[str, ...]:
    """Return the kinds of wrong answers that most of a few problems pass."""
    tries = []
    for number, (problem, gold) in enumerate(answers[:TRIED]):
        wrong = wrong_responses(problem, gold, gold, options)
        begin = number * KINDS // 2 % len(wrong)  # so that all kinds are tried on some problem
        tried = dict([*wrong.items(), *wrong.items()][begin : begin + min(KINDS, len(wrong))])
        texts = [Completion.from_text(text) for text in tried.values()]
        tries.append((problem, tried, submit(problem, texts)))
    passed, n = Counter[str](), Counter[str]()
    for problem, tried, future in tries:
        for kind, verdicts in zip(tried, _await(future, problem, timeout), strict=True):
            n[kind] += 1
            passed[kind] += bool(outcome(verdicts[name]))
    return tuple(kind for kind in n if n[kind] > 1 and passed[kind] == n[kind])


def _await(
    future: Future[list[dict[str, Verdict]]], problem: Problem, timeout: float
) -> list[dict[str, Verdict]]:
    try:
        return future.result(timeout)
    except TimeoutError as error:
        raise RunError(
            f"guard preflight: verdicts on {problem.id} did not come within {timeout:g} s",
            remedy="the pool lost them, or a verifier waits for something: try it with rlvr verify",
        ) from error


def _gold(verifier: GivesGold, problems: Sequence[Problem]) -> list[tuple[Problem, str]]:
    """Return the problems for which the verifier has a gold answer, with the answers."""
    answers: list[tuple[Problem, Any]] = [(problem, verifier.gold(problem)) for problem in problems]
    for problem, answer in answers:
        if not isinstance(answer, str | None):
            cls = type(verifier)
            raise PluginError(
                f"{problem.id}: the verifier's gold answer is a {type(answer).__name__}, not text",
                where=f"{inspect.getfile(cls)} ({cls.__qualname__}.gold)",
                remedy="have it return text, or None where there is no such answer",
            )
    return [(problem, answer) for problem, answer in answers if answer is not None]


def _answers_of_others(answers: Sequence[str]) -> list[list[str]]:
    """For each answer, return the next one that differs from it, if there is one."""
    around = [*answers, *answers]
    return [
        next(([other] for other in around[i + 1 : i + len(answers)] if other != answer), [])
        for i, answer in enumerate(answers)
    ]


def _faults(problem: Problem, answer: str, right: Verdict, empty: Verdict, name: str) -> list[str]:
    faults = []
    if not outcome(right):
        faults.append(
            f"{problem.id}: {name} gives the gold answer {answer[-60:]!r} score {right.score} "
            f"(status {right.status}: {right.detail})"
        )
    if outcome(empty):
        faults.append(f"{problem.id}: {name} passes an empty answer")
    return faults


def _report(faults: Sequence[str]) -> RlvrError:
    more = f"and {len(faults) - 5} more" if len(faults) > 5 else ""
    return RunError(
        f"guard preflight: {len(faults)} gold or wrong answers are judged wrongly before training",
        remedy=(
            *faults[:5],
            more,
            "fix the verifier or the data",
            "see rlvr docs guards#preflight",
            "guards: [{use: guards/preflight, off: true}] turns it off",
        ),
    )
