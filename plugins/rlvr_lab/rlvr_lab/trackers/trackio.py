"""Each step's metrics in Trackio, a dashboard on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlvr_core.api import ComponentConfig
from rlvr_core.record.trackers.common import Progress, finite, need

if TYPE_CHECKING:
    from rlvr_core.api import TrackedRun


class Trackio:
    """A run of Trackio with the name of the run's folder.

    Raises:
        MachineError: If trackio is not installed.
    """

    class Config(ComponentConfig):
        """Options of tracker ``lab/trackio``."""

        project: str = "rlvr"
        """Project."""

    def __init__(self, config: Config) -> None:
        need("trackio", "lab/trackio", "rlvr-lab[trackio]")
        self._config = config
        self._run: Any = None

    def start(self, run: TrackedRun, step: int) -> None:
        """See ``Tracker``."""
        import trackio

        self._progress = Progress(run.folder / "trackio")
        self._run = trackio.init(
            project=self._config.project, name=run.name, resume="allow", config=dict(run.config)
        )

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Log a step's finite values."""
        if self._progress.due(step):
            self._run.log(finite(values), step=step)
            self._progress.done(step)

    def close(self) -> None:
        """Write what is left."""
        if self._run is not None:
            self._run.finish()
