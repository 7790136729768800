"""The run's event bus, and two that subscribe to it: the plugins' hooks, and the guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Json
from rlvr_core.api.components import RunObserver, Stateful

if TYPE_CHECKING:
    from rlvr_core.api import EvalFinished, GroupsScored, Guard, RunStarted, StepFinished
    from rlvr_core.host.host import Host

_HOOKS = (
    *("run_started", "groups_scored", "step_finished"),
    *("eval_finished", "checkpoint_saved", "run_finished"),
)


def _to_all(method: Callable[..., None]) -> Callable[..., None]:
    """Return a method that calls the method of this name on every subscriber."""

    def call(self: RunEvents, event: Any) -> None:
        for observer in self._observers:
            getattr(observer, method.__name__)(event)

    return call


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


def plugin_hooks(host: Host) -> RunObserver:
    """An observer that calls the observing hooks of all plugins, which have the same names.

    An exception in one does not stop the run.
    """
    observer = RunObserver()
    for hook in _HOOKS:
        setattr(observer, hook, partial(host.observe, hook))
    return observer


class Guards(RunObserver):
    """Passes each step to the configured guards; a guard stops the run by raising ``RunError``.

    Args:
        guards: Guards by position and name; a checkpoint holds the state of those that are
            ``Stateful``.
    """

    def __init__(self, guards: Mapping[str, Guard]) -> None:
        self.guards = guards

    def run_started(self, event: RunStarted) -> None:
        """Pass the run's configuration to each guard that observes runs."""
        for guard in self.guards.values():
            if isinstance(guard, RunObserver):
                guard.run_started(event)

    def groups_scored(self, event: GroupsScored) -> None:
        """Pass the step's groups to each guard."""
        for guard in self.guards.values():
            guard.on_groups(event)

    def step_finished(self, event: StepFinished) -> None:
        """Pass the step's metrics to each guard."""
        for guard in self.guards.values():
            guard.on_step(event)

    def eval_finished(self, event: EvalFinished) -> None:
        """Pass an evaluation to each guard that observes runs."""
        for guard in self.guards.values():
            if isinstance(guard, RunObserver):
                guard.eval_finished(event)

    def state_dict(self) -> dict[str, Json]:
        """Return the state of each stateful guard."""
        return {n: one.state_dict() for n, one in self.guards.items() if isinstance(one, Stateful)}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore the state that ``state_dict`` returned."""
        for name, guard in self.guards.items():
            if isinstance(guard, Stateful) and name in state:  # a resumed run may add one
                guard.load_state_dict(state[name])
