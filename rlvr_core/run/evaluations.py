"""The interface of a run to its evaluations, which ``eval.in_run`` implements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rlvr_core.api import EvalReport, Json, Problem
from rlvr_core.api.rollouts import Sampled

if TYPE_CHECKING:
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.rollout.collect import Generator
    from rlvr_core.verify.judge import Judge

Phase = Callable[[str], AbstractContextManager[None]]
"""Shows the current phase of the run, and times the block."""


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


class Evaluations(Protocol):
    """Runs the eval tasks of a run, tracks the best value, and decides on early stopping.

    Attributes:
        held_out: The problems of each task, by task name.
        max_tokens: The largest completion cap of any task, in tokens.
        improved: Whether the last ``run`` reached the best value so far.
    """

    held_out: Mapping[str, tuple[Problem, ...]]
    max_tokens: int
    improved: bool

    @property
    def best_step(self) -> int | None:
        """Return the step of the best checkpoint by ``checkpoint.keep_best``, if any."""

    @property
    def stop_reason(self) -> str | None:
        """Return why the run should stop early; None if it should continue."""

    def check(self, judge: Judge) -> None:
        """Refuse metrics in the configuration that no evaluation reports.

        Raises:
            ConfigError: If there is one; names the available tasks or metrics.
        """

    def run(
        self, generator: Generator, step: int, version: int, phase: Phase
    ) -> Iterator[Evaluation]:
        """Evaluate the engine's current weights on every task.

        Raises:
            RunError: If too many verdicts were errors.
        """

    def state_dict(self) -> dict[str, Json]:
        """Return the state for the checkpoint."""

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore a checkpoint's state; other keys in it are ignored."""


class NoEvaluations:
    """The evaluations of a run without eval tasks; see ``Evaluations``."""

    held_out: Mapping[str, tuple[Problem, ...]] = {}
    max_tokens = 0
    improved = False
    best_step = None
    stop_reason = None

    def check(self, judge: Judge) -> None:
        """Do nothing: the configuration names no metric."""

    def run(
        self, generator: Generator, step: int, version: int, phase: Phase
    ) -> Iterator[Evaluation]:
        """Yield nothing: there are no tasks."""
        return iter(())

    def state_dict(self) -> dict[str, Json]:
        """Return the initial state of a run with tasks."""
        return {"best": None, "early_stop": None}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Do nothing: there is no state."""


def evaluations_of(resolved: Resolved) -> Evaluations:
    """Return the run's evaluations; their code is imported only if the configuration has tasks."""
    config = resolved.config
    if not (config.eval.tasks or config.eval.early_stop or config.checkpoint.keep_best):
        return NoEvaluations()
    from rlvr_core.eval.in_run import RunEvaluations

    return RunEvaluations(resolved)
