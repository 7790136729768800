"""Promises of trackers and guards."""

from __future__ import annotations

import math
from typing import Any

from rlvr_core.api import GroupsScored, RunError, StepFinished, TrackedRun
from rlvr_core.api.components import Stateful
from rlvr_devkit.conformance.made import group
from rlvr_devkit.conformance.subject import Check, Subject, as_json, demand

_METRICS = {
    "reward/mean": 0.5,
    "loss": 0.01,
    "grad_norm": 0.5,
    "entropy/mean": 1.0,
    "length/mean": 4.0,
}


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


def _healthy_steps(guard: Any, steps: range) -> None:
    """Show a guard steps in which nothing is wrong."""
    try:
        for step in steps:
            groups = (group((1.0, 0.0, float(step % 2), 1.0), version=step),)
            guard.on_groups(GroupsScored(step, step, groups))
            guard.on_step(StepFinished(step, step, dict(_METRICS)))
    except RunError as error:
        raise AssertionError(f"it stops a run in which nothing is wrong: {error}") from None


def guard_is_quiet_and_resumes(subject: Subject) -> None:
    """Check a healthy run, and that the state is JSON and all that a guard needs to continue."""
    guard, resumed = subject.build(), subject.build()
    _healthy_steps(guard, range(10))
    if isinstance(guard, Stateful):
        resumed.load_state_dict(as_json(guard.state_dict(), "state_dict"))
    for instance in (guard, resumed):
        _healthy_steps(instance, range(10, 20))
    if isinstance(guard, Stateful):
        now, then = (as_json(instance.state_dict(), "state_dict") for instance in (guard, resumed))
        demand(now == then, f"after a resume its state is {then}, and {now} without one")


def guard_stops_by_run_error(subject: Subject) -> None:
    """Check that absent and infinite metrics, and answers without a verdict, do not break it."""
    guard = subject.build()
    for step, value in enumerate((0.5, math.nan, math.inf, -math.inf)):
        metrics = dict.fromkeys(_METRICS if step else (), value)
        try:
            guard.on_groups(GroupsScored(step, step, (group([None]),) if step else ()))
            guard.on_step(StepFinished(step, step, metrics))
        except RunError:
            return
        except Exception as error:
            raise AssertionError(
                f"it raises {type(error).__name__} ({error}) where a metric is "
                f"{value if step else 'absent'}: stop a run by RunError alone"
            ) from error


GUARD_CHECKS: tuple[Check, ...] = (
    Check("quiet", "a healthy run goes on, also when it is resumed", guard_is_quiet_and_resumes),
    Check(
        "run-error",
        "it raises nothing but RunError, whatever the numbers",
        guard_stops_by_run_error,
    ),
)
