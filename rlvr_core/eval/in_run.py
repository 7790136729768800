"""Evaluations during a run; they decide the best checkpoint and early stopping.

A task is sampled with the run's own engine, prompts and verifiers, by the same generator as in
training, so that a prompt cannot differ between the two (T38).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    Draw,
    EvalTask,
    Json,
    SamplingParams,
)
from rlvr_core.config.tree import numbered
from rlvr_core.data.load import problems_given
from rlvr_core.eval.dataset_task import DatasetTask, refuse_external
from rlvr_core.eval.direction import MAXIMIZE, Direction, direction_of, improves
from rlvr_core.eval.metric_check import check_metric

if TYPE_CHECKING:
    from rlvr_core.api import EvalReport, Problem
    from rlvr_core.api.rollouts import Sampled
    from rlvr_core.config.model import EarlyStopSection
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.rollout.collect import Generator
    from rlvr_core.verify.judge import Judge

CUT_OFF = "cut_off"
"""Key in the basis of a report: share of answers that were cut off at the token cap."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NamedTask:
    """An eval task and its name in records."""

    name: str
    task: EvalTask


@dataclass(frozen=True, slots=True)
class Best:
    """The best checkpoint so far.

    Attributes:
        step: Its step.
        value: Value of the metric.
        metric: The metric of ``checkpoint.keep_best`` by which it is the best.
        direction: The direction in which that metric improves.
    """

    step: int
    value: float
    metric: str
    direction: Direction


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
        tasks: The eval tasks.
        held_out: The problems of each task, by task name.
        max_tokens: The largest completion cap of any task, in tokens.
        improved: Whether the last ``run`` reached the best value so far.
        best: The best checkpoint so far; None before the first.
        latest: The last evaluation, and how its task samples; None before the first.
        early_stop: Tracks evaluations without improvement; None if early stopping is not
            configured.
    """

    def __init__(self, resolved: Resolved) -> None:
        self._resolved, self._config = resolved, resolved.config
        self.tasks = named_tasks(resolved)
        where = resolved.where(("eval", "tasks"))
        self.held_out: Mapping[str, tuple[Problem, ...]] = {
            named.name: problems_given(named.task.problems(), named.name, "problems()", where)
            for named in self.tasks
        }
        self.max_tokens = max((named.task.sampling.max_tokens for named in self.tasks), default=0)
        section, self._keep_best = self._config.eval.early_stop, self._config.checkpoint.keep_best
        self.best: Best | None = None
        self.latest: tuple[Evaluation, SamplingParams] | None = None
        self.early_stop = None
        if section is not None:
            direction = self._direction(section.metric)
            self.early_stop = EarlyStop(section.model_copy(update={"direction": direction}))
        self._best_direction = MAXIMIZE
        if self._keep_best is not None:
            self._best_direction = self._direction(self._keep_best)
        self.improved = False

    @property
    def best_step(self) -> int | None:
        """Step of the best checkpoint so far."""
        return None if self.best is None else self.best.step

    @property
    def stop_reason(self) -> str | None:
        """Why the run should stop early; None if it should not."""
        return None if self.early_stop is None else self.early_stop.reason

    def check(self, judge: Judge) -> None:
        """Refuse metrics in the configuration that no evaluation reports.

        Raises:
            ConfigError: If there is one; names the available tasks or metrics.
        """
        early = self._config.eval.early_stop
        metrics = {
            ("checkpoint", "keep_best"): self._keep_best,
            ("eval", "early_stop", "metric"): None if early is None else early.metric,
        }
        for loc, metric in metrics.items():
            if metric is not None:
                check_metric(metric, self.tasks, judge, self._resolved.where(loc))

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
        for named in self.tasks:
            with phase(f"evaluation {named.name}"):
                evaluation = evaluate(named, generator, version=version, step=step)
            self.latest = (evaluation, named.task.sampling)
            yield evaluation
            self.improved |= self._improves(step, evaluation)
            self._watch_progress(step, evaluation)

    def state_dict(self) -> dict[str, Json]:
        """Return the best checkpoint, and the state of early stopping."""
        return {
            "best": None if self.best is None else asdict(self.best),
            "early_stop": None if self.early_stop is None else self.early_stop.state_dict(),
        }

    def load_state_dict(self, state: Any) -> None:
        """Restore the state from a checkpoint."""
        same = {"metric": self._keep_best, "direction": self._best_direction}
        if state.get("best") and state["best"] | same == state["best"]:
            self.best = Best(**state["best"])
        if self.early_stop is not None and state.get("early_stop"):
            self.early_stop.load_state_dict(state["early_stop"])

    def _direction(self, metric: str) -> Direction:
        """Return the direction in which a metric improves; see ``direction_of``."""
        task, _, name = metric.rpartition(":")
        named = next((each for each in self.tasks if each.name == task), None)
        stated = self._config.eval.early_stop
        same = stated is not None and stated.metric == metric
        return direction_of(
            name,
            None if named is None else named.task,
            stated.direction if stated is not None and same else None,
            self._resolved.where(("eval", "early_stop")),
        )

    def _improves(self, step: int, evaluation: Evaluation) -> bool:
        value = None if self._keep_best is None else value_of(self._keep_best, evaluation)
        # the untrained model needs no checkpoint: the user already has it
        if self._keep_best is None or value is None or step == 0:
            return False
        best = None if self.best is None else self.best.value
        if not improves(value, best, self._best_direction):
            return False
        self.best = Best(step, value, self._keep_best, self._best_direction)
        return True

    def _watch_progress(self, step: int, evaluation: Evaluation) -> None:
        # an evaluation made only because the run ends here would be absent from a longer run
        if self.early_stop is None or step % self._config.eval.every != 0:
            return
        value = value_of(self.early_stop.section.metric, evaluation)
        if value is not None:
            self.early_stop.observe(step, value)


@dataclass(slots=True)
class EarlyStop:
    """Early stopping: counts evaluations since the last improvement.

    The first evaluation is that of the initial model, and the baseline for the second. A
    value counts as an improvement if it is better than the best one by more than ``min_delta``;
    a non-finite value never does.

    Attributes:
        section: The configured options, with the metric's direction filled in.
        best: The best value; None before the first.
        best_step: Step of the best value.
        waited: Evaluations since then.
    """

    section: EarlyStopSection
    best: float | None = None
    best_step: int = 0
    waited: int = 0

    def observe(self, step: int, value: float) -> None:
        """Record the metric's value in one evaluation."""
        if improves(value, self.best, self._direction, self.section.min_delta):
            self.best, self.best_step, self.waited = value, step, 0
        else:
            self.waited += 1

    @property
    def reason(self) -> str | None:
        """Return why the run should stop; None if it should not."""
        if self.waited < self.section.patience:
            return None
        word = "risen" if self._direction == MAXIMIZE else "fallen"
        by = f" by more than {self.section.min_delta:g}" if self.section.min_delta else ""
        best = "never was a number" if self.best is None else f"best {self.best:.6g}"
        return (
            f"early stop: {self.section.metric} has not {word}{by} in {self.waited} evaluations "
            f"({best} after {self.best_step} steps)"
        )

    def state_dict(self) -> dict[str, Json]:
        """Return the state for the checkpoint."""
        return {
            "metric": self.section.metric,
            "direction": self._direction,
            "best": self.best,
            "best_step": self.best_step,
            "waited": self.waited,
        }

    def load_state_dict(self, state: dict[str, Json]) -> None:
        """Restore a checkpoint's state, unless it is about another metric."""
        same = {"metric": self.section.metric, "direction": self._direction}
        if state | same == state:
            self.best, self.best_step = state["best"], state["best_step"]
            self.waited = state["waited"]

    @property
    def _direction(self) -> Direction:
        return self.section.direction or MAXIMIZE


def named_tasks(resolved: Resolved) -> list[NamedTask]:
    """Build the eval tasks; repeated names get ``#2`` and so on."""
    refs = resolved.config.eval.tasks
    named: list[NamedTask] = []
    for name, ref in zip(numbered(ref.use for ref in refs), refs, strict=True):
        task = resolved.build("eval_task", ref)
        if isinstance(task, DatasetTask):
            task.take_cap(resolved.config.sampling.max_tokens)
        refuse_external(ref.use, task, "rlvr run", "evaluate the run's checkpoints with rlvr watch")
        named.append(NamedTask(name, task))
    return named


def evaluate(named: NamedTask, generator: Generator, *, version: int, step: int) -> Evaluation:
    """Sample, judge and score the task's problems with the engine's current weights."""
    task = named.task
    draws = [Draw(problem, task.n, index) for index, problem in enumerate(task.problems())]
    sampled = generator.generate(draws, task.sampling, version=version, step=step)
    groups = [sample.group for sample in sampled]
    report = task.score(groups)
    members = [member for group in groups for member in group.members]
    cut = sum(member.completion.finish_reason == "length" for member in members)
    if cut:
        report = replace(report, basis={**report.basis, CUT_OFF: cut / len(members)})
    return Evaluation(named.name, task.sampling.temperature, report, sampled)


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
