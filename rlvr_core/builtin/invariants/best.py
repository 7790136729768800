"""Whether the best value that a run keeps and stops by is the best that its evaluations had.

``checkpoint.keep_best`` and ``eval.early_stop`` compare each evaluation with the best one before.
What a checkpoint says of that is compared with all values that the evaluations have reported.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr_core.api.services import declared_metrics

if TYPE_CHECKING:
    from pathlib import Path

    from rlvr_core.api import EvalFinished, Json
    from rlvr_core.api.services import RunConfig

RISING = ("accuracy", "pass@", "score", "format")
FALLING = ("truncated", "unscored")
"""Beginnings of metrics that mean the same in every task, by how they get better."""


@dataclass(slots=True)
class Best:
    """The best value of a metric so far.

    Attributes:
        task: Full name of the task.
        metric: The metric's name in it.
        falls: Whether less is better; None where nobody has said.
        least: By how much a value has to be better than the best before.
        every: Steps from one evaluation that counts to the next; 0 for those of any step but 0.
        value: The best value; None before the first.
        step: Steps before its evaluation.
    """

    task: str
    metric: str
    falls: bool | None
    least: float
    every: int
    value: float | None = None
    step: int = 0

    def add(self, event: EvalFinished) -> None:
        """Take an evaluation into account."""
        counts = event.step % self.every == 0 if self.every else event.step > 0
        value = event.report.metrics.get(self.metric, math.nan)
        if event.task != self.task or not counts or not math.isfinite(value):
            return
        if self.value is not None:
            gain = self.value - value if self.falls else value - self.value
            if not gain > self.least:
                return
        self.value, self.step = value, event.step

    def wrong(self, told: Mapping[str, Any] | None, has: str, at: str) -> str:
        """Return what is wrong with what a checkpoint says of it; empty if nothing is.

        Args:
            told: What it says.
            has: Name of the value in it.
            at: Name of the step.
        """
        value = told.get(has) if told else None
        if value == self.value and (told is None or value is None or told[at] == self.step):
            return ""
        says = f"{value:g} after {told[at]} steps" if told and value is not None else "none"
        due = f"{self.value:g} after {self.step} steps" if self.value is not None else "none"
        less = "less" if self.falls else "more"
        return f"the best {self.task}:{self.metric} is {says}, and {less} is better: it was {due}"


class BestSoFar:
    """Follows the metrics of ``checkpoint.keep_best`` and ``eval.early_stop``.

    Args:
        config: The run's configuration.
        evaluations: The run's evaluations, which know their tasks; None where there are none.
    """

    def __init__(self, config: RunConfig, evaluations: Any = None) -> None:
        stop, kept = config.eval.early_stop, config.checkpoint.keep_best
        self._followed: dict[str, Best] = {}
        if evaluations is None or (stop is None and kept is None):
            return
        named = {one.name: type(one.task) for one in evaluations.tasks}
        if kept is not None:
            same = stop.direction if stop is not None and stop.metric == kept else None
            self._follow("best", kept, named, same)
        if stop is not None:
            least, every = stop.min_delta, config.eval.every
            self._follow("early_stop", stop.metric, named, stop.direction, least, every)

    def _follow(
        self,
        name: str,
        metric: str,
        tasks: Mapping[str, type],
        stated: str | None,
        least: float = 0.0,
        every: int = 0,
    ) -> None:
        task, _, short = metric.rpartition(":")
        falls = falls_by(short, tasks.get(task), stated)
        if falls is not None:
            self._followed[name] = Best(task, short, falls, least, every)

    def add(self, event: EvalFinished) -> None:
        """Take an evaluation into account."""
        for one in self._followed.values():
            one.add(event)

    def state_dict(self) -> dict[str, Json]:
        """Return the best values, for a checkpoint."""
        return {
            name: [one.task, one.metric, one.value, one.step]
            for name, one in self._followed.items()
        }

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Restore them; what follows another metric by now, or was never followed, is let go."""
        for name, one in [*self._followed.items()]:
            known = (state or {}).get(name)
            if known is None or known[:2] != [one.task, one.metric]:
                del self._followed[name]
            else:
                one.value, one.step = known[2:]

    def wrong(self, taken: Mapping[str, Any] | None, folder: Path) -> str:
        """Return what is wrong with the best values in a checkpoint; empty if nothing is.

        Args:
            taken: The state of this when the checkpoint was begun.
            folder: The checkpoint's.
        """
        if not taken:
            return ""
        state = json.loads((folder / "trainer" / "state.json").read_text(encoding="utf-8"))
        for name, (task, metric, value, step) in taken.items():
            one = self._followed.get(name)
            if one is not None:
                due = Best(task, metric, one.falls, one.least, one.every, value, step)
                has, at = ("value", "step") if name == "best" else ("best", "best_step")
                if what := due.wrong(state.get(name), has, at):
                    return what
        return ""


def falls_by(metric: str, task: type | None, stated: str | None) -> bool | None:
    """Return whether a metric gets better by falling; None where it is declared for a family.

    Args:
        metric: Its name.
        task: The class of its task, which may declare it.
        stated: What the configuration says.
    """
    declared = () if task is None else declared_metrics(task)
    for one in declared:
        if one.name == metric and one.better is not None:
            return bool(one.better == "down")
    if any("<" in one.name for one in declared):
        return None
    if metric.startswith(FALLING):
        return True
    return False if metric.startswith(RISING) else stated == "minimize"
