"""Promises of trackers and guards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rlvr_core.api import (
    Completion,
    Group,
    GroupsScored,
    Judged,
    Problem,
    RunError,
    StepFinished,
    TrackedRun,
    Verdict,
)
from rlvr_core.api.services import Stateful
from rlvr_core.builtin.conformance.subject import Check, Subject, Unchecked, as_json, demand


def tracker_takes_a_run(subject: Subject) -> None:
    """Check that a tracker accepts any number, closes, and continues after a resume."""
    run = TrackedRun(subject.folder, subject.folder.name, {"run": {"name": "conformance"}})
    numbers = {"loss": 0.5, "reward/mean": math.nan, "grad_norm": math.inf, "a/b c": -math.inf}
    for first in (0, 1):
        tracker = subject.build()
        tracker.start(run, first)
        for step in (first, first + 1):
            tracker.metrics(step, numbers)
        tracker.metrics(first + 2, {"reward/mean": 1.0})  # different names than before
        tracker.close()


TRACKER_CHECKS: tuple[Check, ...] = (
    Check("run", "it takes any numbers, closes, and continues", tracker_takes_a_run),
)


# -- guards --------------------------------------------------------------------------------------


def _quiet_run(steps: int) -> list[tuple[GroupsScored, StepFinished]]:
    """Return the events of a healthy run."""
    problem = Problem("p", "?", "v", {}, "conformance")
    events = []
    for step in range(steps):
        right = (True, False, step % 2 == 0, True)
        members = tuple(
            Judged(
                Completion((1,), (5,) * 4, (-1.0,) * 4, (True,) * 4, f"{passed} {step}", "stop"),
                {"v": Verdict(float(passed), passed=passed)},
                float(passed),
                passed,
            )
            for passed in right
        )
        metrics = {
            "reward/mean": sum(right) / 4,
            "loss": 0.01,
            "grad_norm": 0.5,
            "entropy/mean": 1.0,
            "length/mean": 4.0,
            "lr": 1e-6,
        }
        groups = GroupsScored(step, step, (Group(problem, members, step),))
        events.append((groups, StepFinished(step, step, metrics)))
    return events


def _tell(guard: Any, events: Sequence[tuple[GroupsScored, StepFinished]]) -> None:
    for groups, finished in events:
        guard.on_groups(groups)
        guard.on_step(finished)


def guard_is_quiet(subject: Subject) -> None:
    """Check that the guard does not stop a healthy run."""
    try:
        _tell(subject.build(), _quiet_run(20))
    except RunError as error:
        raise AssertionError(f"it stops a run in which nothing is wrong: {error}") from None


def guard_stops_by_run_error(subject: Subject) -> None:
    """Check that absent and infinite metrics, and answers without a verdict, do not break it."""
    problem = Problem("p", "?", "v", {}, "conformance")
    empty = Completion((1,), (), (), (), "", "length")
    unknown = Judged(empty, {"v": Verdict(None, "unscorable", passed=None)}, None, None)
    guard = subject.build()
    for step, value in enumerate((0.5, math.nan, math.inf, -math.inf)):
        names = ("reward/mean", "loss", "grad_norm", "entropy/mean", "length/mean")
        metrics = dict.fromkeys(names if step else (), value)
        groups = (Group(problem, (unknown,), step),) if step else ()
        try:
            _tell(guard, [(GroupsScored(step, step, groups), StepFinished(step, step, metrics))])
        except RunError:
            return
        except Exception as error:
            raise AssertionError(
                f"it raises {type(error).__name__} ({error}) where a metric is "
                f"{value if step else 'absent'}: stop a run by RunError alone"
            ) from error


def guard_resumes(subject: Subject) -> None:
    """Check that its state is JSON, and that a guard that loads it returns the same state."""
    guard = subject.build()
    if not isinstance(guard, Stateful):
        raise Unchecked("it has no state")
    events = _quiet_run(8)
    _tell(guard, events[:4])
    state = guard.state_dict()
    written = as_json(state, "state_dict")
    resumed = subject.build()
    resumed.load_state_dict(written)
    for one in (guard, resumed):
        _tell(one, events[4:])
    now, then = (as_json(one.state_dict(), "state_dict") for one in (guard, resumed))
    demand(now == then, f"after a resume its state is {then}, and {now} without one")


GUARD_CHECKS: tuple[Check, ...] = (
    Check("quiet", "a run in which nothing is wrong goes on", guard_is_quiet),
    Check(
        "run-error",
        "it raises nothing but RunError, whatever the numbers",
        guard_stops_by_run_error,
    ),
    Check("resumes", "its state is JSON, and all it needs to continue", guard_resumes),
)
