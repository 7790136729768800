"""What measures and watches a run: eval tasks, guards, trackers and observers of its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from rlvr_core.api.hooks import (
    CheckpointSaved,
    EvalFinished,
    GroupsScored,
    RunFinished,
    RunStarted,
    StepFinished,
)
from rlvr_core.api.problems import Json, Problem, SamplingParams
from rlvr_core.api.rollouts import EvalReport, Group


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


@runtime_checkable
class Reporter(Protocol):
    """A guard, tracker or optimizer that has numbers of its own for the metrics of a step.

    Its class declares them: ``reports = (Metric("drift/mean", "What it says.", "its unit"),)``.
    """

    def report(self) -> Mapping[str, float]:
        """The numbers by name; asked once a step, after the update and before ``on_step``."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The run that a tracker shows.

    Attributes:
        folder: The run's folder; a tracker's files go into a folder of their own there.
        name: The folder's name, which no other run has.
        config: The resolved configuration, without secrets.
    """

    folder: Path
    name: str
    config: Mapping[str, Json]


@runtime_checkable
class Tracker(Protocol):
    """Is given each step's metrics, in the run's first process.

    Its constructor raises ``MachineError`` when a package is missing, so that a run fails before
    its first step. One that fails later is reported, and the run goes on without it:
    ``metrics.jsonl`` has everything.
    """

    def start(self, run: TrackedRun, step: int) -> None:
        """Begin to show a run, or go on.

        Args:
            run: The run.
            step: The first step to come. Above 0, or in a folder that a tracker began before, the
                run was resumed: steps from this one on may have been shown already, and must not
                be shown twice.
        """

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Show a step's metrics; values may be infinite or NaN."""

    def close(self) -> None:
        """Send what is left and stop."""


class RunObserver:
    """Is told of a run's events, in their order. Each method does nothing unless overridden.

    All calls come from the thread that trains. What an observer raises ends the run, which is what
    a guard does on purpose.
    """

    def plan(self, lines: Sequence[str]) -> None:
        """The run is about to load its model; ``lines`` say what it is going to do."""

    def phase(self, label: str) -> None:
        """What the run is busy with or waits for, from now on."""

    def message(self, text: str) -> None:
        """Something the user should know."""

    def run_started(self, event: RunStarted) -> None:
        """The first step is about to be taken, or the first after a resume."""

    def groups_scored(self, event: GroupsScored) -> None:
        """The groups of a step have their rewards; the step has not trained on them yet."""

    def step_finished(self, event: StepFinished) -> None:
        """A step is done."""

    def eval_finished(self, event: EvalFinished) -> None:
        """An evaluation is done."""

    def checkpoint_saved(self, event: CheckpointSaved) -> None:
        """A checkpoint is complete on disk."""

    def run_finished(self, event: RunFinished) -> None:
        """The run has ended, well or badly."""

    def close(self) -> None:
        """Release what is held: a terminal, a file; safe to call twice."""
