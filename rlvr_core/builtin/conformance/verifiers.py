"""Promises of verifiers, with the functions that check them."""

from __future__ import annotations

import copy
import json
import math
import multiprocessing
import pickle
import time
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
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
from rlvr_core.builtin.conformance.junk import junk
from rlvr_core.builtin.conformance.subject import Check, Subject, demand


def _reward_range(subject: Subject) -> tuple[float, float]:
    """Return the lowest and highest score, as the class declares them."""
    return traits_of(subject.component, VerifierTraits).reward_range or (0.0, 1.0)


def _problems(subject: Subject) -> list[Problem]:
    """Return the different problems of the cases."""
    found: dict[str, Problem] = {}
    for case in subject.cases():
        found.setdefault(json.dumps(case.problem.spec, sort_keys=True), case.problem)
    return list(found.values())


def _is_right(subject: Subject, verdict: Verdict) -> bool:
    """Whether a verdict calls the answer right."""
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
    """Check that repetition and a new instance do not change a verdict."""
    first, second = subject.build(), subject.build()
    for case in subject.cases():
        verdicts = [judge(v, case.problem, case.completion) for v in (first, first, second)]
        demand(
            verdicts[0] == verdicts[1] == verdicts[2], f"{case.where}: verdicts differ: {verdicts}"
        )


def in_range(subject: Subject) -> None:
    """Check the scores of all cases."""
    verifier = subject.build()
    for case in subject.cases():
        _scored(subject, judge(verifier, case.problem, case.completion), case.where)


def stands_junk(subject: Subject) -> None:
    """Check that degenerate responses are judged in time, without an exception."""
    right = next(case.response for case in subject.cases() if case.passed is not False)
    wrong = next((case.response for case in subject.cases() if case.passed is False), "")
    tasks = [
        (what, problem, text)
        for problem in _problems(subject)[:3]
        for what, text in junk(str(problem.prompt), right, wrong).items()
    ]
    for what, answer in _in_a_child(subject, tasks):
        if isinstance(answer, str):
            raise AssertionError(f"on {what}: {answer}")
        _scored(subject, answer, f"on {what}")


def leaves_problem(subject: Subject) -> None:
    """Check that judging does not modify the problem."""
    verifier = subject.build()
    for case in subject.cases():
        before = copy.deepcopy(case.problem)
        judge(verifier, case.problem, case.completion)
        demand(case.problem == before, f"{case.where}: verify changed the problem")


def picklable(subject: Subject) -> None:
    """Check that a copy sent to another process gives the same verdicts."""
    verifier = subject.build()
    sent = pickle.loads(pickle.dumps(verifier))
    for case in subject.cases():
        here, there = (judge(v, case.problem, case.completion) for v in (verifier, sent))
        demand(here == there, f"{case.where}: {here} here, {there} after pickling")


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
    Check("right-and-wrong", "right answers pass, wrong ones do not", right_and_wrong),
    Check("gold", "the answer it calls gold passes", gold_passes, needs="gold"),
    Check("deterministic", "the same answer gets the same verdict", deterministic),
    Check("range", "scores are finite and within reward_range", in_range),
    Check("junk", "no response makes it raise or take long", stands_junk),
    Check("no-mutation", "the problem is left as it was", leaves_problem),
    Check("picklable", "it can be sent to a worker process", picklable),
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


def _scored(subject: Subject, verdict: Verdict, where: str) -> None:
    low, high = _reward_range(subject)
    numbers = [*verdict.parts.values(), *([] if verdict.score is None else [verdict.score])]
    demand(all(map(math.isfinite, numbers)), f"{where}: a score is not finite: {verdict}")
    inside = verdict.score is None or low <= verdict.score <= high
    demand(inside, f"{where}: the score is outside reward_range {low} to {high}: {verdict}")


def _in_a_child(
    subject: Subject, tasks: Sequence[tuple[str, Problem, str]]
) -> Iterator[tuple[str, Verdict | str]]:
    """Judge in a forked process, which is killed if it hangs; faults are returned as text."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_judge, args=(subject, tasks, theirs), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        child.start()
    theirs.close()
    try:
        for what, _, _ in tasks:
            if not ours.poll(3 * subject.example.seconds + 5):
                yield what, f"no verdict after {3 * subject.example.seconds + 5:.0f} s"
                return
            try:
                seconds, answer = ours.recv()
            except EOFError:
                child.join()
                yield what, f"the process died (exit code {child.exitcode})"
                return
            most = subject.example.seconds
            yield (
                what,
                f"took {seconds:.1f} s, more than {most:.0f}" if seconds > most else answer,
            )
    finally:
        child.kill()
        child.join()


def _judge(subject: Subject, tasks: Sequence[tuple[str, Problem, str]], pipe: Connection) -> None:
    verifier = subject.build()
    for _, problem, text in tasks:
        seconds, answer = _timed(verifier, problem, text)
        if seconds > subject.example.seconds and isinstance(answer, Verdict):
            # Loading at the first use must not count for the text. The second text is new, so it is
            # not in a cache of verdicts.
            again = [_timed(verifier, problem, same)[0] for same in (text, text + " x")]
            seconds = min(seconds, max(again))
        pipe.send((seconds, answer))


def _timed(verifier: Any, problem: Problem, text: str) -> tuple[float, Verdict | str]:
    """Return the seconds that a verdict took, and the verdict, or a description of its fault."""
    begin = _own_seconds()
    try:
        answer = judge(verifier, problem, Completion.from_text(text))
    except BaseException as error:
        answer = f"it raised {type(error).__name__}: {str(error)[:200]!r}"
    else:
        if not isinstance(answer, Verdict):
            answer = f"it gave {type(answer).__name__}, not a Verdict"
    return _own_seconds() - begin, answer


def _own_seconds() -> float:
    """Return a clock's time that excludes waiting of this thread for a processor.

    A busy machine must not count against a verifier; its own work, sleep and waits do.
    """
    now = time.monotonic()
    try:
        waited = Path("/proc/thread-self/schedstat").read_text().split()[1]
    except (OSError, IndexError):  # not Linux, or a kernel without this statistic
        return now
    return now - int(waited) / 1e9
