"""Sends each step's metrics to Weights & Biases, or writes its offline files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from rlvr_core.api import ComponentConfig
from rlvr_core.record.trackers.common import Progress, finite, need

if TYPE_CHECKING:
    from rlvr_core.api import TrackedRun


class Wandb:
    """A run of Weights & Biases with the name of the run's folder; its login is wandb's own.

    Raises:
        MachineError: If wandb is not installed.
    """

    class Config(ComponentConfig):
        """Options of tracker ``wandb``."""

        project: str = "rlvr"
        """Project."""
        entity: str | None = None
        """User or team; null is wandb's default."""
        mode: Literal["online", "offline"] | None = None
        """``offline`` writes files for ``wandb sync`` and needs no network. null: what
        ``WANDB_MODE`` says, else online."""

    def __init__(self, config: Config) -> None:
        need("wandb", "core/wandb", "rlvr-core[wandb]")
        self._config = config
        self._run: Any = None

    def start(self, run: TrackedRun, step: int) -> None:
        """See ``Tracker``."""
        import wandb

        folder = run.folder / "wandb"
        self._progress = Progress(folder)
        self._run = wandb.init(
            project=self._config.project,
            entity=self._config.entity,
            mode=self._config.mode,
            dir=str(folder),
            id=run.name,
            name=run.name,
            resume="allow",
            config=dict(run.config),
            # neither the command line, which may hold secrets, nor what is printed
            settings=wandb.Settings(console="off", x_disable_meta=True, disable_git=True),
        )

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Log a step's finite values."""
        if self._progress.due(step):
            self._run.log(finite(values), step=step)
            self._progress.done(step)

    def close(self) -> None:
        """Upload what is left."""
        if self._run is not None:
            self._run.finish()
