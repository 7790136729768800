"""What a run needs of its evaluations; they themselves are the service ``core/evaluations``."""

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
"""Shows what the run is doing, and times the block."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A finished evaluation.

    Attributes:
        name: Full name of the task.
        temperature: It sampled at.
        report: Its metrics.
        sampled: Every judged group, in the task's order.
    """

    name: str
    temperature: float
    report: EvalReport
    sampled: list[Sampled]


class Evaluations(Protocol):
    """Runs the eval tasks of a run, keeps the best value, and says when to stop early.

    Attributes:
        held_out: The problems of each task, by its name.
        max_tokens: The largest cap on a completion of any task.
        improved: Whether the last ``run`` gave the best value so far.
    """

    held_out: Mapping[str, tuple[Problem, ...]]
    max_tokens: int
    improved: bool

    @property
    def best_step(self) -> int | None:
        """Step of the best checkpoint by ``checkpoint.keep_best``; None before the first."""

    @property
    def stop_reason(self) -> str | None:
        """Why the run should stop early; None while it should not."""

    def check(self, judge: Judge) -> None:
        """Refuse metrics in the configuration that no evaluation will have.

        Raises:
            ConfigError: Naming the tasks, or the metrics, that there will be.
        """

    def run(
        self, generator: Generator, step: int, version: int, phase: Phase
    ) -> Iterator[Evaluation]:
        """Evaluate the engine's current weights on every task.

        Raises:
            RunError: If too many verdicts were errors.
        """

    def state_dict(self) -> dict[str, Json]:
        """State for the checkpoint."""

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from a checkpoint's state, whatever else it holds."""


class NoEvaluations:
    """The evaluations of a run without eval tasks. See ``Evaluations``."""

    held_out: Mapping[str, tuple[Problem, ...]] = {}
    max_tokens = 0
    improved = False
    best_step = None
    stop_reason = None

    def check(self, judge: Judge) -> None:
        """Nothing names a metric."""

    def run(
        self, generator: Generator, step: int, version: int, phase: Phase
    ) -> Iterator[Evaluation]:
        """None."""
        return iter(())

    def state_dict(self) -> dict[str, Json]:
        """What a run with tasks has in its place."""
        return {"best": None, "early_stop": None}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Nothing to continue."""


def evaluations_of(resolved: Resolved) -> Evaluations:
    """The run's evaluations; their code is imported only when the configuration names some."""
    config = resolved.config
    if not (config.eval.tasks or config.eval.early_stop or config.checkpoint.keep_best):
        return NoEvaluations()
    evaluations: Evaluations = resolved.host.service("core/evaluations")(resolved)
    return evaluations
