"""Passes a run's events to its guards, which may stop it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlvr_core.api import Json
from rlvr_core.api.components import RunObserver, Stateful

if TYPE_CHECKING:
    from rlvr_core.api import GroupsScored, Guard, RunStarted, StepFinished


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

    def state_dict(self) -> dict[str, Json]:
        """Return the state of each stateful guard."""
        return {n: one.state_dict() for n, one in self.guards.items() if isinstance(one, Stateful)}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore the state that ``state_dict`` returned."""
        for name, guard in self.guards.items():
            if isinstance(guard, Stateful) and name in state:  # a resumed run may add one
                guard.load_state_dict(state[name])
