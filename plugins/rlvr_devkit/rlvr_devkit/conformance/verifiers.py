"""Promises of verifiers, with the functions that check them."""

from __future__ import annotations

import copy
import json
import math
import pickle
from typing import Any

from rlvr_core.api import (
    Completion,
    DataError,
    Problem,
    Verdict,
    Verifier,
    VerifierTraits,
    traits_of,
)
from rlvr_devkit.conformance.junk import junk
from rlvr_devkit.conformance.subject import Check, Subject, demand


def _reward_range(subject: Subject) -> tuple[float, float]:
    """Return the lowest and highest score, as the class declares them."""
    return traits_of(subject.component, VerifierTraits).reward_range or (0.0, 1.0)


def _problems(subject: Subject) -> list[Problem]:
    """Return the different problems of the cases."""
    problems: dict[str, Problem] = {}
    for case in subject.cases():
        problems.setdefault(json.dumps(case.problem.spec, sort_keys=True), case.problem)
    return list(problems.values())


def _is_right(subject: Subject, verdict: Verdict) -> bool:
    """Return whether a verdict calls the answer right."""
    if verdict.passed is None:
        return verdict.score == _reward_range(subject)[1]
    return verdict.passed


def judge(verifier: Any, problem: Problem, completion: Completion) -> Any:
    """Return the verdict on one completion; as a group of one if a verifier only judges groups."""
    if isinstance(verifier, Verifier):
        return verifier.verify(problem, completion)
    return verifier.verify_group(problem, [completion])[0]


def right_and_wrong(subject: Subject) -> None:
    """Check every case's outcome and score."""
    outcomes = {case.passed for case in subject.cases()}
    demand(True in outcomes, "no case with 'passed': true: nothing shows that it ever passes")
    demand(False in outcomes, "no case with 'passed': false: nothing shows that it ever fails")
    verifier = subject.build()
    faults = []
    for case in subject.cases():
        verdict = judge(verifier, case.problem, case.completion)
        demand(isinstance(verdict, Verdict), f"{case.where}: verify gave {verdict!r}")
        _in_range(subject, verdict, case.where)
        if case.passed is not None and _is_right(subject, verdict) != case.passed:
            faults.append(f"{case.where}: must {'pass' if case.passed else 'fail'}, got {verdict}")
        elif case.score is not None and not _close(verdict.score, case.score):
            faults.append(f"{case.where}: must score {case.score}, got {verdict}")
    demand(not faults, "\n".join(faults))


def gold_passes(subject: Subject) -> None:
    """Check that its gold answer passes."""
    verifier = subject.build()
    for problem in _problems(subject):
        gold = verifier.gold(problem)
        if gold is not None:
            verdict = judge(verifier, problem, Completion.from_text(gold))
            demand(_is_right(subject, verdict), f"{problem.id}: gold {gold!r} got {verdict}")


def deterministic(subject: Subject) -> None:
    """Check that repetition, a new instance and a copy sent to another process judge the same."""
    verifier = subject.build()
    others = {
        "repeated": verifier,
        "by a new instance": subject.build(),
        "after pickling": pickle.loads(pickle.dumps(verifier)),
    }
    for case in subject.cases():
        before = copy.deepcopy(case.problem)
        first = judge(verifier, case.problem, case.completion)
        for how, other in others.items():
            again = judge(other, case.problem, case.completion)
            demand(first == again, f"{case.where}: {first}, and {again} {how}")
        demand(case.problem == before, f"{case.where}: verify changed the problem")


def stands_junk(subject: Subject) -> None:
    """Check that degenerate responses are judged without an exception."""
    verifier = subject.build()
    right = next(case.response for case in subject.cases() if case.passed is not False)
    wrong = next((case.response for case in subject.cases() if case.passed is False), "")
    for problem in _problems(subject)[:3]:
        for what, text in junk(str(problem.prompt), right, wrong).items():
            try:
                verdict = judge(verifier, problem, Completion.from_text(text))
            except Exception as error:
                fault = f"it raised {type(error).__name__}: {str(error)[:200]!r}"
                raise AssertionError(f"on {what}: {fault}") from error
            gave = type(verdict).__name__
            demand(isinstance(verdict, Verdict), f"on {what}: it gave {gave}, not a Verdict")
            _in_range(subject, verdict, f"on {what}")


def check_speaks(subject: Subject) -> None:
    """Check that ``check`` accepts the cases, and refuses only by ``DataError``."""
    verifier = subject.build()
    for problem in _problems(subject):
        verifier.check(problem)
    for spec in ({}, dict.fromkeys(subject.cases()[0].problem.spec)):
        try:
            verifier.check(Problem("bad", "", "", spec, "cases"))
        except DataError:
            continue
        except Exception as error:
            raise AssertionError(
                f"check raises {type(error).__name__} on the spec {spec}; raise DataError, which "
                f"names what is missing"
            ) from error


def group_agrees(subject: Subject) -> None:
    """Check that judging a group together and one by one gives the same verdicts."""
    verifier = subject.build()
    for problem in _problems(subject):
        cases = [case for case in subject.cases() if case.problem.spec == problem.spec]
        together = list(verifier.verify_group(problem, [case.completion for case in cases]))
        n, gave = len(cases), len(together)
        demand(gave == n, f"{problem.id}: verify_group gave {gave} verdicts for {n} completions")
        if not isinstance(verifier, Verifier):
            continue  # it may compare the completions with each other
        apart = [judge(verifier, problem, case.completion) for case in cases]
        demand(together == apart, f"{problem.id}: verify_group {together}, verify {apart}")


VERIFIER_CHECKS: tuple[Check, ...] = (
    Check(
        "right-and-wrong",
        "right answers pass, wrong ones do not; scores are within reward_range",
        right_and_wrong,
    ),
    Check("gold", "the answer it calls gold passes", gold_passes, needs="gold"),
    Check(
        "deterministic",
        "the same answer gets the same verdict, in another process, too; the problem is left alone",
        deterministic,
    ),
    Check("junk", "no response makes it raise", stands_junk),
    Check("check", "check accepts good specs and names what bad ones lack", check_speaks, "check"),
    Check(
        "group",
        "verify_group gives a verdict per completion, and says what verify says",
        group_agrees,
        needs="verify_group",
    ),
)


def _close(score: float | None, expected: float) -> bool:
    return score is not None and math.isclose(score, expected, rel_tol=1e-9, abs_tol=1e-12)


def _in_range(subject: Subject, verdict: Verdict, where: str) -> None:
    low, high = _reward_range(subject)
    numbers = [*verdict.parts.values(), *([] if verdict.score is None else [verdict.score])]
    demand(all(map(math.isfinite, numbers)), f"{where}: a score is not finite: {verdict}")
    inside = verdict.score is None or low <= verdict.score <= high
    demand(inside, f"{where}: the score is outside reward_range {low} to {high}: {verdict}")
