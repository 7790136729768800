"""The run's event bus, to which observers of a run subscribe."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from rlvr_core.api import (
    CheckpointSaved,
    EvalFinished,
    GroupsScored,
    RunFinished,
    RunStarted,
    StepFinished,
)
from rlvr_core.api.components import RunObserver

if TYPE_CHECKING:
    from rlvr_core.host.host import Host


_HOOKS = (
    *("run_started", "groups_scored", "step_finished"),
    *("eval_finished", "checkpoint_saved", "run_finished"),
)


class RunEvents(RunObserver):
    """Forwards events to all subscribers, in the order of subscription.

    In a run of several processes, observers with output subscribe only in the main process, guards
    in every process.
    """

    def __init__(self, *observers: RunObserver) -> None:
        self._observers = list(observers)

    def subscribe(self, observer: RunObserver) -> None:
        """Add a subscriber after the existing ones."""
        self._observers.append(observer)

    def plan(self, lines: Sequence[str]) -> None:
        """See ``RunObserver.plan``."""
        for one in self._observers:
            one.plan(lines)

    def phase(self, label: str) -> None:
        """See ``RunObserver.phase``."""
        for one in self._observers:
            one.phase(label)

    def message(self, text: str) -> None:
        """See ``RunObserver.message``."""
        for one in self._observers:
            one.message(text)

    def run_started(self, event: RunStarted) -> None:
        """See ``RunObserver.run_started``."""
        for one in self._observers:
            one.run_started(event)

    def groups_scored(self, event: GroupsScored) -> None:
        """See ``RunObserver.groups_scored``."""
        for one in self._observers:
            one.groups_scored(event)

    def step_finished(self, event: StepFinished) -> None:
        """See ``RunObserver.step_finished``."""
        for one in self._observers:
            one.step_finished(event)

    def eval_finished(self, event: EvalFinished) -> None:
        """See ``RunObserver.eval_finished``."""
        for one in self._observers:
            one.eval_finished(event)

    def checkpoint_saved(self, event: CheckpointSaved) -> None:
        """See ``RunObserver.checkpoint_saved``."""
        for one in self._observers:
            one.checkpoint_saved(event)

    def run_finished(self, event: RunFinished) -> None:
        """See ``RunObserver.run_finished``."""
        for one in self._observers:
            one.run_finished(event)


def plugin_hooks(host: Host) -> RunObserver:
    """An observer that calls the observing hooks of all plugins, which have the same names.

    An exception in one does not stop the run.
    """
    observer = RunObserver()
    for hook in _HOOKS:
        setattr(observer, hook, partial(host.observe, hook))
    return observer
