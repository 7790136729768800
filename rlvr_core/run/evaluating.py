"""The evaluations of a run, and what follows from them: the best checkpoint, an early stop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr_core.api import EvalFinished, Json
from rlvr_core.run.evaluation import Evaluation, evaluate, value_of

if TYPE_CHECKING:
    from rlvr_core.config.model import EarlyStopSection, RunConfig
    from rlvr_core.rollout.collect import Generator
    from rlvr_core.run.evaluation import NamedTask
    from rlvr_core.run.session import Session
    from rlvr_core.verify.error_rate import ErrorRate


@dataclass(frozen=True, slots=True)
class Best:
    """The best checkpoint so far, by the metric of ``checkpoint.keep_best``."""

    step: int
    value: float


class Evaluations:
    """Runs the eval tasks of a run, keeps the best value, and says when to stop early.

    Args:
        config: The run's configuration.
        tasks: What to evaluate on.
        generator: Samples and judges; the one that training uses, so that prompts are the same.
        errors: Raises when too many verdicts are errors.

    Attributes:
        best: The best checkpoint so far; None before the first.
        early_stop: Counts evaluations without improvement; None if the run asks for none.
    """

    def __init__(
        self,
        config: RunConfig,
        tasks: Sequence[NamedTask],
        generator: Generator,
        errors: ErrorRate,
    ) -> None:
        self._config, self._tasks = config, tasks
        self._generator, self._errors = generator, errors
        section = config.eval.early_stop
        self.best: Best | None = None
        self.early_stop = None if section is None else EarlyStop(section)

    def run(self, session: Session) -> bool:
        """Evaluate the current weights on every task, and record it.

        Returns:
            Whether these weights are the best so far, by ``checkpoint.keep_best``.
        """
        improved = False
        step, version = session.step, session.version
        for named in self._tasks:
            with session.phase(f"evaluation {named.name}"):
                found = evaluate(named, self._generator, version=version, step=step)
            self._errors.check()
            session.recorder.evaluation(
                step, version, found.name, found.temperature, found.report, found.sampled
            )
            session.events.eval_finished(EvalFinished(step, found.name, found.report))
            improved |= self._improves(step, found)
            self._watch_progress(step, found)
        return improved

    def _improves(self, step: int, found: Evaluation) -> bool:
        wanted = self._config.checkpoint.keep_best
        value = None if wanted is None else value_of(wanted, found, "checkpoint.keep_best")
        if value is None:
            return False
        # the untrained model is the user's already, and needs no checkpoint
        if step == 0 or (self.best is not None and value <= self.best.value):
            return False
        self.best = Best(step, value)
        return True

    def _watch_progress(self, step: int, found: Evaluation) -> None:
        # one that is only made because the run ends here would not be there in a longer run
        if self.early_stop is None or step % self._config.eval.every != 0:
            return
        value = value_of(self.early_stop.section.metric, found, "eval.early_stop.metric")
        if value is not None:
            self.early_stop.observe(step, value)


@dataclass(slots=True)
class EarlyStop:
    """Counts evaluations since the last improvement.

    The first evaluation, of the model the run began with, is what the second is held against. A
    value counts as an improvement if it is better than the best one by more than ``min_delta``;
    one that is no finite number never is.

    Attributes:
        section: What the user asked for.
        best: The best value; None before the first.
        best_step: Where it was.
        waited: Evaluations since then.
    """

    section: EarlyStopSection
    best: float | None = None
    best_step: int = 0
    waited: int = 0

    def observe(self, step: int, value: float) -> None:
        """Take in the metric's value of one evaluation."""
        if math.isfinite(value) and (self.best is None or self._gain(value) > 0):
            self.best, self.best_step, self.waited = value, step, 0
        else:
            self.waited += 1

    @property
    def reason(self) -> str | None:
        """Why the run should stop; None while it should not."""
        if self.waited < self.section.patience:
            return None
        word = "risen" if self.section.direction == "maximize" else "fallen"
        by = f" by more than {self.section.min_delta:g}" if self.section.min_delta else ""
        best = "never was a number" if self.best is None else f"best {self.best:.6g}"
        return (
            f"early stop: {self.section.metric} has not {word}{by} in {self.waited} evaluations "
            f"({best} after {self.best_step} steps)"
        )

    def state_dict(self) -> dict[str, Json]:
        """State for the checkpoint."""
        return {
            "metric": self.section.metric,
            "direction": self.section.direction,
            "best": self.best,
            "best_step": self.best_step,
            "waited": self.waited,
        }

    def load_state_dict(self, state: dict[str, Json]) -> None:
        """Go on from a checkpoint, unless that counted another metric."""
        same = {"metric": self.section.metric, "direction": self.section.direction}
        if state | same == state:
            self.best, self.best_step = state["best"], state["best_step"]
            self.waited = state["waited"]

    def _gain(self, value: float) -> float:
        assert self.best is not None
        sign = 1.0 if self.section.direction == "maximize" else -1.0
        return sign * (value - self.best) - self.section.min_delta
