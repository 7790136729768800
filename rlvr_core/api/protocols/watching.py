"""What measures and watches a run: eval tasks and guards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rlvr_core.api.types import (
    EvalReport,
    Group,
    Json,
    Problem,
    SamplingParams,
)

if TYPE_CHECKING:
    from rlvr_core.api.hooks import GroupsScored, StepFinished


@runtime_checkable
class EvalTask(Protocol):
    """A data set split with frozen sampling and metrics.

    Its traits are ``EvalTaskTraits``.
    """

    n: int
    """Completions per problem."""

    sampling: SamplingParams

    def problems(self) -> Sequence[Problem]:
        """The problems, in a fixed order."""

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Metrics of all groups."""


@runtime_checkable
class Guard(Protocol):
    """Watches a run and stops it by raising ``RunError`` when something fails silently.

    One that remembers earlier steps is ``Stateful``: a checkpoint then holds what it remembers.
    """

    def on_groups(self, event: GroupsScored) -> None:
        """Called with each step's groups before the optimizer step."""

    def on_step(self, event: StepFinished) -> None:
        """Called with each step's metrics."""


@runtime_checkable
class Stateful(Protocol):
    """Has a state that a checkpoint holds, so that a resumed run goes on exactly."""

    def state_dict(self) -> dict[str, Json]:
        """Return all that ``load_state_dict`` needs, as JSON."""

    def load_state_dict(self, state: dict[str, Json]) -> None:
        """Go on from what ``state_dict`` returned."""
