"""The weight of a steered entropy bonus: it follows from the entropies of the updates before it.

After each applied update it rises by ``step`` where the mean entropy of the loss tokens is at the
target or below, and falls by it above, between ``min`` and ``max``. The bonus is applied while the
last entropy was at the target or below (docs/losses.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_core.builtin.invariants.check import StepView

CLOSE = 1e-4
"""Nats from the target within which rounding decides on which side an entropy is."""

SAME = 1e-9
"""Share of a weight that is rounding."""

Sums = dict[str, tuple[float, float]]
"""Sum of entropies and number of loss tokens, by the name of a loss."""


class EntropyControl:
    """Follows the weight of each loss that has it steered."""

    def __init__(self) -> None:
        self._due: dict[str, tuple[float, bool]] = {}
        self._means: dict[str, float] = {}

    def sums(self, view: StepView) -> Sums:
        """Return this process's entropies of the update, of losses that are steered."""
        steered = view.trainer.entropy
        names = {id(term.loss): term.name for term in view.trainer.objective.terms}
        total, count = dict[str, float](), Counter[str]()
        for seen in view.seen if steered else ():
            for loss, batch, _ in seen.losses:
                name = names.get(id(loss), "")
                if name in steered and batch.entropy_BT is not None:
                    summed = float(batch.entropy_BT[batch.mask_BT].double().sum())
                    total[name] = total.get(name, 0.0) + summed
                    count[name] += int(batch.mask_BT.sum())
        return {name: (total[name], count[name]) for name in count}

    def wrong(self, view: StepView, shares: Sequence[Sums]) -> str:
        """Say what is wrong with the weights before an update, and keep its entropies."""
        what = self.wrong_weight(view.trainer.entropy)
        sums: dict[str, tuple[float, float]] = {}
        for share in shares:
            for name, (total, count) in share.items():
                before = sums.get(name, (0.0, 0.0))
                sums[name] = before[0] + total, before[1] + count
        self._means = {name: total / count for name, (total, count) in sums.items() if count}
        return what or self._wrong_bonus(view)

    def updated(self, view: StepView, *, applied: bool) -> None:
        """Work out what the weights are after an update."""
        self._due = {}
        for name, mean in self._means.items() if applied else ():
            controller: Any = view.trainer.entropy[name]
            rule = controller.control
            low = mean <= rule.target
            if math.isfinite(mean) and abs(mean - rule.target) > CLOSE:
                moved = controller.coefficient + (rule.step if low else -rule.step)
                self._due[name] = min(max(moved, rule.min), rule.max), low

    def wrong_weight(self, controllers: Mapping[str, Any]) -> str:
        """Say which weight is another one than the last update makes it; empty if none is."""
        for name, (due, _) in self._due.items():
            found, rule = controllers[name].coefficient, controllers[name].control
            if not abs(found - due) <= SAME * max(abs(due), rule.step):
                return (
                    f"the weight of {name}'s entropy bonus is {found:.6g} (entropy/coefficient), "
                    f"and must be {due:.6g}: the mean entropy of the update before it was "
                    f"{self._means[name]:.4g} nats, its target is {rule.target:g} and its step "
                    f"{rule.step:g}"
                )
        return ""

    def _wrong_bonus(self, view: StepView) -> str:
        names = {id(term.loss): term.name for term in view.trainer.objective.terms}
        for seen in view.seen:
            for loss, batch, _ in seen.losses:
                name = names.get(id(loss), "")
                due, low = self._due.get(name) or _by_state(view.trainer.entropy.get(name))
                wanted, found = due if low else 0.0, batch.entropy_bonus or 0.0
                if not math.isnan(due) and abs(found - wanted) > SAME:
                    return (
                        f"the loss adds {found:.6g} times the entropy, and "
                        f"entropy_control makes it {wanted:.6g}"
                    )
        return ""


def _by_state(controller: Any) -> tuple[float, bool]:
    """Return weight and whether it is applied where no update was followed: at the first one."""
    if controller is None:
        return math.nan, False
    if controller.entropy is None:
        return controller.coefficient, False
    unsure = abs(controller.entropy - controller.control.target) <= CLOSE
    low = controller.entropy <= controller.control.target
    return (math.nan if unsure else controller.coefficient), low
