"""What every verifier promises, each promise with the function that checks it."""

from __future__ import annotations

import copy
import json
import math
import multiprocessing
import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlvr_core.api import (
    Completion,
    DataError,
    Problem,
    Verdict,
    Verifier,
    VerifierTraits,
    config_class,
    traits_of,
)
from rlvr_core.builtin.conformance.cases import Case
from rlvr_core.builtin.conformance.junk import junk


@dataclass(frozen=True, slots=True)
class Subject:
    """A verifier under test.

    Attributes:
        component: Its class.
        config: The options to construct it with.
        cases: What it must say.
        seconds: Processor time one verdict may take.
    """

    component: type[Any]
    config: Mapping[str, Any]
    cases: Sequence[Case]
    seconds: float = 2.0

    def build(self) -> Any:
        """A new instance."""
        return self.component(config_class(self.component)(**self.config))

    @property
    def reward_range(self) -> tuple[float, float]:
        """Lowest and highest score, as the class declares them."""
        return traits_of(self.component, VerifierTraits).reward_range or (0.0, 1.0)

    def problems(self) -> list[Problem]:
        """The different problems of the cases."""
        found: dict[str, Problem] = {}
        for case in self.cases:
            found.setdefault(json.dumps(case.problem.spec, sort_keys=True), case.problem)
        return list(found.values())

    def is_right(self, verdict: Verdict) -> bool:
        """Whether a verdict calls the answer right."""
        if verdict.passed is None:
            return verdict.score == self.reward_range[1]
        return verdict.passed


@dataclass(frozen=True, slots=True)
class Check:
    """One promise.

    Attributes:
        id: Short name.
        promise: What holds when it passes.
        run: Raises ``AssertionError`` if it does not hold.
        needs: Optional method without which there is nothing to check.
    """

    id: str
    promise: str
    run: Callable[[Any], None]
    needs: str = ""


def judge(verifier: Any, problem: Problem, completion: Completion) -> Any:
    """The verdict on one completion: as a group of one where a verifier judges only groups."""
    if isinstance(verifier, Verifier):
        return verifier.verify(problem, completion)
    return verifier.verify_group(problem, [completion])[0]


def right_and_wrong(subject: Subject) -> None:
    """Check every case's outcome and score."""
    outcomes = {case.passed for case in subject.cases}
    demand(True in outcomes, "no case with 'passed': true: nothing shows that it ever passes")
    demand(False in outcomes, "no case with 'passed': false: nothing shows that it ever fails")
    verifier = subject.build()
    faults = []
    for case in subject.cases:
        verdict = judge(verifier, case.problem, case.completion)
        demand(isinstance(verdict, Verdict), f"{case.where}: verify gave {verdict!r}")
        if case.passed is not None and subject.is_right(verdict) != case.passed:
            faults.append(f"{case.where}: must {'pass' if case.passed else 'fail'}, got {verdict}")
        elif case.score is not None and not _close(verdict.score, case.score):
            faults.append(f"{case.where}: must score {case.score}, got {verdict}")
    demand(not faults, "\n".join(faults))


def gold_passes(subject: Subject) -> None:
    """Check that the answer it calls gold passes."""
    verifier = subject.build()
    for problem in subject.problems():
        gold = verifier.gold(problem)
        if gold is not None:
            verdict = judge(verifier, problem, Completion.from_text(gold))
            demand(subject.is_right(verdict), f"{problem.id}: gold {gold!r} got {verdict}")


def deterministic(subject: Subject) -> None:
    """Check that neither repetition nor a new instance changes a verdict."""
    first, second = subject.build(), subject.build()
    for case in subject.cases:
        said = [judge(v, case.problem, case.completion) for v in (first, first, second)]
        demand(said[0] == said[1] == said[2], f"{case.where}: verdicts differ: {said}")


def in_range(subject: Subject) -> None:
    """Check the scores of all cases."""
    verifier = subject.build()
    for case in subject.cases:
        _scored(subject, judge(verifier, case.problem, case.completion), case.where)


def stands_junk(subject: Subject) -> None:
    """Check that junk is judged, in time, without an exception."""
    right = next(case.response for case in subject.cases if case.passed is not False)
    wrong = next((case.response for case in subject.cases if case.passed is False), "")
    tasks = [
        (what, problem, text)
        for problem in subject.problems()[:3]
        for what, text in junk(str(problem.prompt), right, wrong).items()
    ]
    for what, answer in _in_a_child(subject, tasks):
        if isinstance(answer, str):
            raise AssertionError(f"on {what}: {answer}")
        _scored(subject, answer, f"on {what}")


def leaves_problem(subject: Subject) -> None:
    """Check that the problem is the same afterwards."""
    verifier = subject.build()
    for case in subject.cases:
        before = copy.deepcopy(case.problem)
        judge(verifier, case.problem, case.completion)
        demand(case.problem == before, f"{case.where}: verify changed the problem")


def picklable(subject: Subject) -> None:
    """Check that a copy sent to another process says the same."""
    verifier = subject.build()
    sent = pickle.loads(pickle.dumps(verifier))
    for case in subject.cases:
        here, there = (judge(v, case.problem, case.completion) for v in (verifier, sent))
        demand(here == there, f"{case.where}: {here} here, {there} after pickling")


def config_survives(subject: Subject) -> None:
    """Check that the resolved config of a run can be run again, and misspellings are refused."""
    config = config_class(subject.component)
    given = config(**subject.config)
    again = config.model_validate(
        json.loads(json.dumps(given.model_dump(by_alias=True, mode="json")))
    )
    demand(again == given, f"written and read back, {given!r} becomes {again!r}")
    try:
        config(**{**subject.config, "no_such_option": 1})
    except ValidationError:
        return
    raise AssertionError("an unknown option is accepted: do not change extra='forbid'")


def options_explained(subject: Subject) -> None:
    """Check that each option has a description."""
    fields = config_class(subject.component).model_fields
    bare = [name for name, field in fields.items() if not (field.description or "").strip()]
    demand(not bare, f"write a docstring under {', '.join(bare)}: rlvr list shows it")


def check_speaks(subject: Subject) -> None:
    """Check that ``check`` accepts the cases, and refuses only by ``DataError``."""
    verifier = subject.build()
    for problem in subject.problems():
        verifier.check(problem)
    for spec in ({}, dict.fromkeys(subject.cases[0].problem.spec)):
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
    """Check that judging a group together gives what judging one by one gives."""
    verifier = subject.build()
    for problem in subject.problems():
        cases = [case for case in subject.cases if case.problem.spec == problem.spec]
        together = list(verifier.verify_group(problem, [case.completion for case in cases]))
        n, gave = len(cases), len(together)
        demand(gave == n, f"{problem.id}: verify_group gave {gave} verdicts for {n} completions")
        if not isinstance(verifier, Verifier):
            continue  # it may compare the completions with each other
        apart = [judge(verifier, problem, case.completion) for case in cases]
        demand(together == apart, f"{problem.id}: verify_group {together}, verify {apart}")


VERIFIER_CHECKS = (
    Check("right-and-wrong", "right answers pass, wrong ones do not", right_and_wrong),
    Check("gold", "the answer it calls gold passes", gold_passes, needs="gold"),
    Check("deterministic", "the same answer gets the same verdict", deterministic),
    Check("range", "scores are finite and within reward_range", in_range),
    Check("junk", "no response makes it raise or take long", stands_junk),
    Check("no-mutation", "the problem is left as it was", leaves_problem),
    Check("picklable", "it can be sent to a worker process", picklable),
    Check("config", "its config survives writing and reading; typos are refused", config_survives),
    Check("options", "every option is explained", options_explained),
    Check("check", "check accepts good specs and names what bad ones lack", check_speaks, "check"),
    Check(
        "group",
        "verify_group gives a verdict per completion, and says what verify says",
        group_agrees,
        needs="verify_group",
    ),
)
"""Every promise of a verifier, in the order they are checked."""


def demand(condition: bool, message: str) -> None:
    """Raise ``AssertionError`` with the message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def _close(score: float | None, wanted: float) -> bool:
    return score is not None and math.isclose(score, wanted, rel_tol=1e-9, abs_tol=1e-12)


def _scored(subject: Subject, verdict: Verdict, where: str) -> None:
    low, high = subject.reward_range
    numbers = [*verdict.parts.values(), *([] if verdict.score is None else [verdict.score])]
    demand(all(map(math.isfinite, numbers)), f"{where}: a score is not finite: {verdict}")
    inside = verdict.score is None or low <= verdict.score <= high
    demand(inside, f"{where}: the score is outside reward_range {low} to {high}: {verdict}")


def _in_a_child(
    subject: Subject, tasks: Sequence[tuple[str, Problem, str]]
) -> Iterator[tuple[str, Verdict | str]]:
    """Judge in a forked process, which can be killed where it hangs; a fault comes as text."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_judge, args=(subject, tasks, theirs), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        child.start()
    theirs.close()
    try:
        for what, _, _ in tasks:
            if not ours.poll(3 * subject.seconds + 5):
                yield what, f"no verdict after {3 * subject.seconds + 5:.0f} s"
                return
            try:
                seconds, answer = ours.recv()
            except EOFError:
                child.join()
                yield what, f"the process died (exit code {child.exitcode})"
                return
            late = seconds > subject.seconds
            yield (
                what,
                f"took {seconds:.1f} s, more than {subject.seconds:.0f}" if late else answer,
            )
    finally:
        child.kill()
        child.join()


def _judge(subject: Subject, tasks: Sequence[tuple[str, Problem, str]], pipe: Connection) -> None:
    verifier = subject.build()
    for _, problem, text in tasks:
        begin = _own_seconds()
        answer: object
        try:
            answer = judge(verifier, problem, Completion.from_text(text))
        except BaseException as error:
            answer = f"it raised {type(error).__name__}: {str(error)[:200]!r}"
        else:
            if not isinstance(answer, Verdict):
                answer = f"it gave {type(answer).__name__}, not a Verdict"
        pipe.send((_own_seconds() - begin, answer))


def _own_seconds() -> float:
    """A clock that stands still while this thread is ready and another has the processor.

    A busy machine is no fault of the verifier; its own work, sleep and waiting for others count.
    """
    now = time.monotonic()
    try:
        waited = Path("/proc/thread-self/schedstat").read_text().split()[1]
    except (OSError, IndexError):  # not Linux, or a kernel that does not count it
        return now
    return now - int(waited) / 1e9
