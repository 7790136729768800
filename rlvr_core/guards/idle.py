"""Guard ``idle``: ends a run in which nothing can be learned.

A step is idle if it changed no weights on purpose: no update was applied (no rewards that differ,
or no finite gradient), the gradient was exactly 0, or the learning rate was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from rlvr_core.api import ComponentConfig, Metric
from rlvr_core.api.errors import IdleError
from rlvr_core.api.guards import BaseGuard, how_to_switch_off

if TYPE_CHECKING:
    from rlvr_core.api import GroupsScored, Json, StepFinished


class Idle(BaseGuard):
    """Stops a run after so many idle steps in a row."""

    name = "core/idle"

    reports = (Metric("idle/steps", "Steps in a row before this one that changed no weights.", ""),)

    class Config(ComponentConfig):
        """Options of ``core/idle``."""

        max_steps: Annotated[int, Field(gt=0)] = 250
        """Steps in a row without a change of the weights that end the run."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._max_steps = config.max_steps
        self._steps = 0
        self._passed = self._failed = 0
        """Completions of the idle steps."""

    def on_groups(self, event: GroupsScored) -> None:
        """Count the outcomes of a step."""
        passed = [member.passed for group in event.groups for member in group.members]
        self._passed += passed.count(True)
        self._failed += passed.count(False)

    def on_step(self, event: StepFinished) -> None:
        """Count the step if it changed nothing.

        Raises:
            IdleError: If ``max_steps`` in a row did.
        """
        cause = self._cause(event.metrics)
        if cause is None:
            self._steps = self._passed = self._failed = 0
            return
        self._steps += 1
        if self._steps < self._max_steps:
            return
        what, remedy = cause
        raise IdleError(
            f"guard idle: no weight has changed in {self._steps} steps: {what}",
            where=f"step {event.step + 1}",
            remedy=(
                f"{remedy}; the option max_steps sets the number of steps",
                how_to_switch_off("core/idle"),
            ),
        )

    def report(self) -> Mapping[str, float]:
        """Return the number of idle steps so far."""
        return {"idle/steps": float(self._steps)}

    def state_dict(self) -> dict[str, Json]:
        """Return the counts, for a checkpoint."""
        return {"steps": self._steps, "passed": self._passed, "failed": self._failed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the counts from a checkpoint."""
        self._steps, self._passed = state["steps"], state["passed"]
        self._failed = state["failed"]

    def _cause(self, metrics: Mapping[str, float]) -> tuple[str, str] | None:
        """Return why a step changed nothing, and what to do; None if it changed the weights."""
        if metrics.get("lr") == 0:
            return "the learning rate is 0", "set train.lr above 0"
        if metrics.get("step_skipped"):
            return (
                "no gradient was finite",
                "lower train.lr or use model.dtype: bfloat16",
            )
        if "grad_norm" in metrics and metrics["grad_norm"] != 0:
            return None
        if self._failed == 0 and self._passed:
            return (
                "all completions passed, so rewards do not differ",
                "take harder problems, or look at what the verifier passes",
            )
        if self._passed == 0 and self._failed:
            return (
                "no completion passed, so rewards do not differ",
                "take easier problems or a stronger model, and look at completions that failed: "
                "format, sampling.max_tokens and the verifier",
            )
        return (
            "no group had rewards that differ, or the loss has no gradient",
            "look at the verifier's scores (rlvr show) and at the loss",
        )
