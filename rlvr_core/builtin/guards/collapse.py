"""Guard ``core/collapse``: stops a run whose policy has collapsed (T5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from rlvr_core.api import ComponentConfig, RunError

if TYPE_CHECKING:
    from rlvr_core.api import GroupsScored, Json, StepFinished

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(slots=True)
class _Signal:
    """One metric, averaged over a window of steps.

    Attributes:
        values: Values of the last steps.
        kept: Whether some average so far was within the bound.
        best: Largest average so far; None before the first.
        best_step: Step at which the window of ``best`` ended.
    """

    values: deque[float]
    kept: bool = False
    best: float | None = None
    best_step: int = 0

    def observe(self, value: float, step: int) -> float | None:
        """Add a value; return the average once the window is full."""
        self.values.append(value)
        if len(self.values) < (self.values.maxlen or 1):
            return None
        mean = fmean(self.values)
        if self.best is None or mean > self.best:
            self.best, self.best_step = mean, step
        return mean


class Collapse:
    """Detects collapse in the metrics: reward, groups that all fail, length, entropy.

    Each is averaged over a window. A bound applies only after one window within it: a run in which
    nearly every group fails from the start has not collapsed, but one that gets there has.
    """

    class Config(ComponentConfig):
        """The bounds; null switches one off."""

        window: Annotated[int, Field(gt=0)] = 10
        """Steps to average over."""
        max_drop: Share | None = 0.5
        """Largest share of the best average of ``reward/mean`` that may be lost."""
        max_all_failed: Share | None = 0.7
        """Largest share of the drawn groups in which no completion passed."""
        max_truncated: Share | None = 0.9
        """Largest share of completions truncated at the token cap."""
        min_entropy: Annotated[float, Field(ge=0)] | None = 0.01
        """Smallest ``entropy/mean`` in nats, checked if the loss reports it; null for tasks whose
        answers are certain."""

    def __init__(self, config: Config) -> None:
        self.config = config
        names = ("reward", "all_failed", "truncated", "entropy")
        self._signals = {name: _Signal(deque(maxlen=config.window)) for name in names}

    def on_groups(self, event: GroupsScored) -> None:
        """Do nothing: the metrics of a step are enough. See ``Guard``."""

    def on_step(self, event: StepFinished) -> None:
        """Check the metrics of a step.

        Raises:
            RunError: If a metric exceeds a bound that it was within before.
        """
        metrics, config = event.metrics, self.config
        drawn = metrics.get("groups/drawn", 0.0)
        failed = metrics.get("groups/none_passed", 0.0) / drawn if drawn else None
        found = [
            self._reward(metrics.get("reward/mean"), event.step),
            self._bound("all_failed", failed, config.max_all_failed, event.step, ALL_FAILED),
            self._bound(
                "truncated", metrics.get("truncated_rate"), config.max_truncated, event.step, LONG
            ),
            self._bound(
                "entropy", metrics.get("entropy/mean"), config.min_entropy, event.step, SURE, -1.0
            ),
        ]
        told = [one for one in found if one]
        if told:
            best = self._signals["reward"].best_step + 1
            raise RunError(
                f"guard collapse: averaged over {config.window} steps up to step {event.step + 1}, "
                + "; ".join(told),
                where="guards.use",
                remedy=f"rewards were best around step {best}: begin again from a checkpoint near "
                "it (model.path) with a lower train.lr or a larger beta; see "
                "docs/guards.md#collapse",
            )

    def state_dict(self) -> dict[str, Json]:
        """Return the averages so far, for a checkpoint."""
        return {
            name: {
                "values": list(one.values),
                "kept": one.kept,
                "best": one.best,
                "best_step": one.best_step,
            }
            for name, one in self._signals.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        for name, one in self._signals.items():
            saved = state[name]
            one.values.extend(saved["values"])
            one.kept, one.best = saved["kept"], saved["best"]
            one.best_step = saved["best_step"]

    def _reward(self, value: float | None, step: int) -> str | None:
        bound, signal = self.config.max_drop, self._signals["reward"]
        if value is None:
            return None
        mean = signal.observe(value, step)
        if bound is None or mean is None or signal.best is None or signal.best <= 0:
            return None
        lost = 1 - mean / signal.best
        if lost <= bound:
            return None
        return (
            f"reward/mean has fallen from {signal.best:.3g} to {mean:.3g}: {lost:.0%} of it is "
            f"lost, and max_drop is {bound:.0%}"
        )

    def _bound(
        self,
        name: str,
        value: float | None,
        bound: float | None,
        step: int,
        words: str,
        sign: float = 1.0,
    ) -> str | None:
        """Describe the fault if an average exceeds a bound that it was within before; else None."""
        if value is None or bound is None:
            return None
        signal = self._signals[name]
        mean = signal.observe(value, step)
        if mean is None:
            return None
        beyond = sign * mean > sign * bound
        signal.kept = signal.kept or not beyond
        return words.format(mean=mean, bound=bound) if beyond and signal.kept else None


ALL_FAILED = "no completion passed in {mean:.0%} of the groups, above max_all_failed = {bound:.0%}"
LONG = "{mean:.0%} of the completions are cut off, above max_truncated = {bound:.0%}"
SURE = "entropy/mean is {mean:.2g} nats, below min_entropy = {bound:g}"
