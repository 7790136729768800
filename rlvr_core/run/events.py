"""The run's event bus, and two that subscribe to it: the plugins' hooks, and the guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    Guard,
    GuardContext,
    Json,
    StepObserver,
)
from rlvr_core.api.components import RunObserver, RunWatcher, Stateful
from rlvr_core.api.guards import BindsToRun, LooksBeforeRun, StepView
from rlvr_core.config.guards import default_guards, in_order
from rlvr_core.config.tree import numbered
from rlvr_core.guards.observer import StepObservers

if TYPE_CHECKING:
    from rlvr_core.api import Engine, GroupsScored, StepFinished
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.parallel.ranks import Ranks
    from rlvr_core.plugins.host import Host
    from rlvr_core.run.inputs import Inputs
    from rlvr_core.step.step import PolicyTrainer

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

    def __init__(self, *observers: RunWatcher) -> None:
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


class Guards(RunEvents):
    """Passes the run's events to its guards; a guard stops the run by raising ``RunError``.

    Args:
        guards: The guards by name, in the order they look; a checkpoint holds the state of those
            that are ``Stateful``.
    """

    def __init__(self, guards: Mapping[str, Guard]) -> None:
        super().__init__(*(guard for guard in guards.values() if isinstance(guard, RunWatcher)))
        self.guards = dict(guards)

    def enter(self, stack: ExitStack) -> None:
        """Begin those that hold something while the run lasts, such as a thread."""
        for guard in self.guards.values():
            if isinstance(guard, AbstractContextManager):
                stack.enter_context(guard)

    def preflight(self, inputs: Inputs) -> list[str]:
        """Have guards look at a run before its model is loaded; return their lines for the user.

        Raises:
            RlvrError: If one refuses the run.
        """
        looking = [guard for guard in self.guards.values() if isinstance(guard, LooksBeforeRun)]
        return [line for guard in looking for line in guard.preflight(inputs)]

    def phases(self) -> RunObserver:
        """Return an observer that tells guards what the run waits for, and nothing else."""
        observer = RunObserver()
        setattr(observer, "phase", partial(RunEvents.phase, self))  # noqa: B010
        return observer

    def phase(self, label: str) -> None:
        """Do nothing: the observer of ``phases`` is told before the guards see anything else."""

    def plan(self, lines: Sequence[str]) -> None:
        """Do nothing: guards watch what a run does, not what it prints."""

    def message(self, text: str) -> None:
        """Do nothing, as for ``plan``."""

    def groups_scored(self, event: GroupsScored) -> None:
        """Pass the step's groups to each guard."""
        for guard in self.guards.values():
            guard.on_groups(event)

    def step_finished(self, event: StepFinished) -> None:
        """Pass the step's metrics to each guard."""
        for guard in self.guards.values():
            guard.on_step(event)

    def state_dict(self) -> dict[str, Json]:
        """Return the state of each stateful guard."""
        stateful = ((n, g) for n, g in self.guards.items() if isinstance(g, Stateful))
        return {name: guard.state_dict() for name, guard in stateful}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore the state that ``state_dict`` returned."""
        for name, guard in self.guards.items():
            if isinstance(guard, Stateful) and name in state:  # a resumed run may add one
                guard.load_state_dict(state[name])


def build_guards(resolved: Resolved) -> Guards:
    """Build the guards that a configuration has on."""
    entries = resolved.config.guards
    places = in_order(entries, default_guards(resolved.host.registry))
    names = numbered(entries[place].use for place in places)
    guards = (resolved.make(("guards", place)) for place in places)
    return Guards(dict(zip(names, guards, strict=True)))


def bound_guards(
    guards: Guards,
    inputs: Inputs,
    trainer: PolicyTrainer,
    engine: Engine,
    ranks: Ranks,
    events: RunEvents,
) -> Guards:
    """Bind the guards to the run, and let them observe the trainer's steps.

    Returns:
        The guards, with each verifier that is a guard too.
    """
    judging = inputs.judge.plan.verifiers.items()
    watching = {name: verifier for name, verifier in judging if isinstance(verifier, Guard)}
    guards = Guards({**guards.guards, **watching})
    context = GuardContext(
        config=inputs.config,
        trainer=trainer,
        engine=engine,
        sampler=inputs.sampler,
        judge=inputs.judge,
        problems=inputs.problems,
        tokenizer=inputs.tokenizer,
        ranks=ranks,
        room=inputs.longest_prompt + inputs.longest_answer,
        longest_prompt=inputs.longest_prompt,
        say=events.message,
        phase=events.phase,
        record=inputs.data_reports.append,
        view=StepView(),
    )
    for guard in guards.guards.values():
        if isinstance(guard, BindsToRun):
            guard.bind(context)
    observers = [guard for guard in guards.guards.values() if isinstance(guard, StepObserver)]
    if observers:
        trainer.observer = StepObservers(observers, context.view)
    return guards
