"""A run's trackers: one that fails on the way is reported, and the run goes on without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rlvr_core.api import PluginError, RlvrError, TrackedRun, Tracker
from rlvr_core.api.components import RunObserver

if TYPE_CHECKING:
    from rlvr_core.api import RunStarted, StepFinished


class Tracking(RunObserver):
    """Sends each step's numbers to the trackers of a run.

    Args:
        trackers: By name.
        say: Shows the user a line.
    """

    def __init__(self, trackers: Mapping[str, Tracker], say: Callable[[str], None]) -> None:
        self._trackers = dict(trackers)
        self._say = say

    def run_started(self, event: RunStarted) -> None:
        """Start all of them.

        Raises:
            PluginError: If one cannot be started.
        """
        run = TrackedRun(event.run_dir, event.run_dir.name, dict(event.config))
        for name, tracker in self._trackers.items():
            try:
                tracker.start(run, event.step)
            except (RlvrError, KeyboardInterrupt):
                raise
            except BaseException as error:  # a tracker may even call sys.exit
                raise PluginError(
                    f"tracker '{name}' could not start: {type(error).__name__}: {error}",
                    where="track",
                    remedy="take it out of track to run without it",
                ) from error

    def step_finished(self, event: StepFinished) -> None:
        """Give the step's numbers to each."""
        self._each(lambda tracker: tracker.metrics(event.step, dict(event.metrics)))

    def close(self) -> None:
        """Close all of them; safe to call twice."""
        self._each(lambda tracker: tracker.close())
        self._trackers.clear()

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                call(tracker)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                del self._trackers[name]
                self._say(
                    f"warning: tracker '{name}' failed: {type(error).__name__}: {error}; "
                    "the run goes on without it, and metrics.jsonl has everything"
                )
