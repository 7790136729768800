"""Early stop: ends a run when a metric of its evaluations no longer gets better."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr_core.api.types import Json

if TYPE_CHECKING:
    from rlvr_core.config.model import EarlyStopSection


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
