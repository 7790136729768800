"""Writes each step's metrics as TensorBoard scalars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlvr_core.api import NoConfig
from rlvr_core.record.trackers.common import finite, need

if TYPE_CHECKING:
    from rlvr_core.api import TrackedRun


class TensorBoard:
    """Writes event files into the run's ``tensorboard`` folder.

    Raises:
        MachineError: If tensorboard is not installed.
    """

    Config = NoConfig

    def __init__(self, config: NoConfig) -> None:
        need("tensorboard", "core/tensorboard", "rlvr-core[tensorboard]")
        self._writer: Any = None

    def start(self, run: TrackedRun, step: int) -> None:
        """See ``Tracker``; what an earlier file has of later steps is shown no more."""
        from torch.utils.tensorboard import SummaryWriter

        folder = run.folder / "tensorboard"
        purge = step if folder.is_dir() else None
        self._writer = SummaryWriter(str(folder), purge_step=purge)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write a step's finite values."""
        for name, value in finite(values).items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close."""
        if self._writer is not None:
            self._writer.close()
