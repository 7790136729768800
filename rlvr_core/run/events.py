"""The run's event bus, to which observers of a run subscribe."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlvr_core.api.components import RunObserver

if TYPE_CHECKING:
    from rlvr_core.host.host import Host


def _to_all(method: Callable[..., None]) -> Callable[..., None]:
    """The method of the same name that calls it on every subscriber."""

    def call(self: RunEvents, told: Any) -> None:
        for one in self._observers:
            getattr(one, method.__name__)(told)

    return call


def _to_plugins(method: Callable[..., None]) -> Callable[..., None]:
    """The method of the same name that calls the plugins' hooks of that name."""
    return lambda self, event: self._host.observe(method.__name__, event)


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

    plan = _to_all(RunObserver.plan)
    phase = _to_all(RunObserver.phase)
    message = _to_all(RunObserver.message)
    run_started = _to_all(RunObserver.run_started)
    groups_scored = _to_all(RunObserver.groups_scored)
    step_finished = _to_all(RunObserver.step_finished)
    eval_finished = _to_all(RunObserver.eval_finished)
    checkpoint_saved = _to_all(RunObserver.checkpoint_saved)
    run_finished = _to_all(RunObserver.run_finished)


class PluginHooks(RunObserver):
    """Calls the observing hooks of all plugins; an exception in one does not stop the run."""

    def __init__(self, host: Host) -> None:
        self._host = host

    run_started = _to_plugins(RunObserver.run_started)
    groups_scored = _to_plugins(RunObserver.groups_scored)
    step_finished = _to_plugins(RunObserver.step_finished)
    eval_finished = _to_plugins(RunObserver.eval_finished)
    checkpoint_saved = _to_plugins(RunObserver.checkpoint_saved)
    run_finished = _to_plugins(RunObserver.run_finished)
