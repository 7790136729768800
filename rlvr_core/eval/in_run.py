"""Evaluations during a run; they decide the best checkpoint and early stopping.

A task is sampled with the run's own engine, prompts and verifiers, by the same generator as in
training, so that a prompt cannot differ between the two.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rlvr_core.api import Draw, EvalTask, Json
from rlvr_core.config.tree import numbered
from rlvr_core.data.load import problems_given
from rlvr_core.eval.dataset_task import DatasetTask, refuse_external
from rlvr_core.eval.direction import MAXIMIZE, Direction, direction_of, improves
from rlvr_core.eval.metric_check import check_metric

if TYPE_CHECKING:
    from rlvr_core.api import EvalReport, Problem
    from rlvr_core.api.rollouts import Sampled
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.rollout.collect import Generator
    from rlvr_core.verify.judge import Judge

CUT_OFF = "cut_off"
"""Key in the basis of a report: share of answers that were cut off at the token cap."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Progress:
    """The best value of a metric so far, and how long ago it was reached.

    A value counts as an improvement if it is better than the best one by more than ``min_delta``;
    a non-finite value never does.

    Attributes:
        metric: The metric, as ``TASK:METRIC``.
        direction: The direction in which it improves.
        min_delta: Least improvement that counts.
        patience: Evaluations without improvement after which the run should stop; None for never.
        best: The best value; None before the first.
        best_step: Step of the best value.
        waited: Evaluations since then.
    """

    metric: str
    direction: Direction = MAXIMIZE
    min_delta: float = 0.0
    patience: int | None = None
    best: float | None = None
    best_step: int = 0
    waited: int = 0

    def observe(self, step: int, value: float) -> bool:
        """Record the metric's value in one evaluation; return whether it improved."""
        better = improves(value, self.best, self.direction, self.min_delta)
        if better:
            self.best, self.best_step, self.waited = value, step, 0
        else:
            self.waited += 1
        return better

    @property
    def reason(self) -> str | None:
        """Return why the run should stop; None if it should not."""
        if self.patience is None or self.waited < self.patience:
            return None
        word = "risen" if self.direction == MAXIMIZE else "fallen"
        by = f" by more than {self.min_delta:g}" if self.min_delta else ""
        best = "never was a number" if self.best is None else f"best {self.best:.6g}"
        return (
            f"early stop: {self.metric} has not {word}{by} in {self.waited} evaluations "
            f"({best} after {self.best_step} steps)"
        )

    def state_dict(self) -> dict[str, Json]:
        """Return the state for the checkpoint."""
        names = ("metric", "direction", "best", "best_step", "waited")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore a checkpoint's state, unless it is about another metric."""
        if (state["metric"], state["direction"]) == (self.metric, self.direction):
            self.best, self.best_step = state["best"], state["best_step"]
            self.waited = state["waited"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of one evaluation.

    Attributes:
        name: Full name of the task.
        temperature: Sampling temperature.
        report: The task's metrics.
        sampled: Every judged group, in the task's order.
    """

    name: str
    temperature: float
    report: EvalReport
    sampled: list[Sampled]


class RunEvaluations:
    """Evaluates a run's tasks while it trains; tracks the best value, decides on early stopping.

    Args:
        resolved: The run's configuration.

    Attributes:
        tasks: The eval tasks by their names in records.
        held_out: The problems of each task, by task name.
        max_tokens: The largest completion cap of any task, in tokens.
        improved: Whether the last ``run`` reached the best value so far.
        keep_best: Tracks the metric of ``checkpoint.keep_best``; None if it names none.
        early_stop: Tracks the metric of ``eval.early_stop``; None if it is not configured.
    """

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self.tasks = named_tasks(resolved)
        where = resolved.where(("eval", "tasks"))
        self.held_out: Mapping[str, tuple[Problem, ...]] = {
            name: problems_given(task.problems(), name, "problems()", where)
            for name, task in self.tasks.items()
        }
        self.max_tokens = max((task.sampling.max_tokens for task in self.tasks.values()), default=0)
        self.keep_best: Progress | None = None
        self.early_stop: Progress | None = None
        if (metric := resolved.config.checkpoint.keep_best) is not None:
            self.keep_best = Progress(metric, self._direction(metric))
        if (early := resolved.config.eval.early_stop) is not None:
            self.early_stop = Progress(
                early.metric, self._direction(early.metric), early.min_delta, early.patience
            )
        self.improved = False

    @property
    def best_step(self) -> int | None:
        """Step of the best checkpoint so far."""
        if self.keep_best is None or self.keep_best.best is None:
            return None
        return self.keep_best.best_step

    @property
    def stop_reason(self) -> str | None:
        """Why the run should stop early; None if it should not."""
        return None if self.early_stop is None else self.early_stop.reason

    def check(self, judge: Judge) -> None:
        """Refuse metrics in the configuration that no evaluation reports.

        Raises:
            ConfigError: If there is one; names the available tasks or metrics.
        """
        places = (("checkpoint", "keep_best"), ("eval", "early_stop", "metric"))
        for loc, progress in zip(places, (self.keep_best, self.early_stop), strict=True):
            if progress is not None:
                check_metric(progress.metric, self.tasks, judge, self._resolved.where(loc))

    def run(
        self,
        generator: Generator,
        step: int,
        version: int,
        phase: Callable[[str], AbstractContextManager[None]],
    ) -> Iterator[Evaluation]:
        """Evaluate the engine's current weights on every task.

        Args:
            generator: The run's generator.
            step: The steps taken.
            version: The policy version of the weights.
            phase: Shows what the run does, and times the block.

        Raises:
            RunError: If too many verdicts were errors.
        """
        self.improved = False
        for name, task in self.tasks.items():
            with phase(f"evaluation {name}"):
                evaluation = evaluate(name, task, generator, version=version, step=step)
            yield evaluation
            # the untrained model needs no checkpoint: the user already has it
            if self.keep_best is not None and step > 0:
                value = value_of(self.keep_best.metric, evaluation)
                self.improved |= value is not None and self.keep_best.observe(step, value)
            # an evaluation made only because the run ends here would be absent from a longer run
            if self.early_stop is not None and step % self._resolved.config.eval.every == 0:
                value = value_of(self.early_stop.metric, evaluation)
                if value is not None:
                    self.early_stop.observe(step, value)

    def state_dict(self) -> dict[str, Json]:
        """Return the state of the best checkpoint, and that of early stopping."""
        return {
            "best": None if self.keep_best is None else self.keep_best.state_dict(),
            "early_stop": None if self.early_stop is None else self.early_stop.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore the state from a checkpoint."""
        for key, progress in (("best", self.keep_best), ("early_stop", self.early_stop)):
            if progress is not None and state.get(key):
                progress.load_state_dict(state[key])

    def _direction(self, metric: str) -> Direction:
        """Return the direction in which a metric improves; see ``direction_of``."""
        task, _, name = metric.rpartition(":")
        early = self._resolved.config.eval.early_stop
        stated = early.direction if early is not None and early.metric == metric else None
        where = self._resolved.where(("eval", "early_stop"))
        return direction_of(name, self.tasks.get(task), stated, where)


def named_tasks(resolved: Resolved) -> dict[str, EvalTask]:
    """Build the eval tasks, by name; repeated names get ``#2`` and so on."""
    named: dict[str, EvalTask] = {}
    refs = resolved.config.eval.tasks
    for name, ref in zip(numbered(ref.use for ref in refs), refs, strict=True):
        task = resolved.build("eval_task", ref)
        if isinstance(task, DatasetTask):
            task.take_cap(resolved.config.sampling.max_tokens)
        refuse_external(ref.use, task, "rlvr run", "evaluate the run's checkpoints with rlvr watch")
        named[name] = task
    return named


def evaluate(
    name: str, task: EvalTask, generator: Generator, *, version: int, step: int
) -> Evaluation:
    """Sample, judge and score the task's problems with the engine's current weights."""
    draws = [Draw(problem, task.n, index) for index, problem in enumerate(task.problems())]
    sampled = generator.generate(draws, task.sampling, version=version, step=step)
    groups = [sample.group for sample in sampled]
    report = task.score(groups)
    members = [member for group in groups for member in group.members]
    cut = sum(member.completion.finish_reason == "length" for member in members)
    if cut:
        report = replace(report, basis={**report.basis, CUT_OFF: cut / len(members)})
    return Evaluation(name, task.sampling.temperature, report, sampled)


def value_of(qualified_metric: str, evaluation: Evaluation) -> float | None:
    """Return the metric's value in an evaluation; None if that is of another task.

    A metric that the task could not compute this time, for lack of outcomes, is NaN: no
    improvement, and no reason to end a run.
    """
    task, _, metric = qualified_metric.rpartition(":")
    if evaluation.name != task:
        return None
    value = evaluation.report.metrics.get(metric)
    if value is None:
        names = ", ".join(evaluation.report.metrics) or "none"
        _log.warning("task '%s' has no metric '%s' this time; it has: %s", task, metric, names)
        return math.nan
    return value
