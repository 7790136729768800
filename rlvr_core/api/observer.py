"""What watches a run: displays, trackers, guards, mirrors and plugins' hooks."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_core.api.hooks import (
    CheckpointSaved,
    EvalFinished,
    GroupsScored,
    RunFinished,
    RunStarted,
    StepFinished,
)


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
