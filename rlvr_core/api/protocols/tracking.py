"""What shows a run's metrics elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from rlvr_core.api.types import Json


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
