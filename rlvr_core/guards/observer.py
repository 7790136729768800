"""Passes what the trainer computes to all guards that observe steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rlvr_core.api import StepObserver

if TYPE_CHECKING:
    from pathlib import Path

    from rlvr_core.api import Group, WeightSource
    from rlvr_core.api.guards import StepView
    from rlvr_core.api.learning import LossComputed


class StepObservers(StepObserver):
    """The trainer's observer of a run with guards.

    Args:
        observers: The guards, each before those that its faults also set off.
        view: The step in progress, which they share.
    """

    def __init__(self, observers: Sequence[StepObserver], view: StepView) -> None:
        self._observers, self._view = observers, view

    def step_begins(self, groups: Sequence[Group], step: int, version: int) -> None:
        """See ``StepObserver``."""
        self._view.begin(groups, step, version)
        for observer in self._observers:
            observer.step_begins(groups, step, version)

    def loss_computed(self, event: LossComputed) -> None:
        """See ``StepObserver``."""
        for observer in self._observers:
            observer.loss_computed(event)
        if not event.given:
            self._view.add(event)

    def update_begins(self) -> None:
        """See ``StepObserver``."""
        self._view.complete()
        for observer in self._observers:
            observer.update_begins()

    def update_ended(self, grad_norm: float, *, applied: bool) -> None:
        """See ``StepObserver``."""
        for observer in self._observers:
            observer.update_ended(grad_norm, applied=applied)
        self._view.next()

    def weights_loaded(self, version: int, source: WeightSource) -> None:
        """See ``StepObserver``."""
        for observer in self._observers:
            observer.weights_loaded(version, source)

    def checkpoint_written(self, folder: Path) -> None:
        """See ``StepObserver``."""
        for observer in self._observers:
            observer.checkpoint_written(folder)

    def step_ends(self) -> Mapping[str, float]:
        """Return the numbers of all observers."""
        numbers: dict[str, float] = {}
        for observer in self._observers:
            numbers |= observer.step_ends()
        return numbers
