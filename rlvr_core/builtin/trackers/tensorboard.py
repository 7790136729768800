"""Each step's metrics as TensorBoard scalars: ``track: [tensorboard]``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from rlvr_core.api.errors import MachineError

if TYPE_CHECKING:
    from rlvr_core.record.rundir import RunFolder


class TensorBoard:
    """Writes event files into the run's ``tensorboard`` folder.

    Args:
        folder: The run's folder.

    Raises:
        MachineError: If tensorboard is not installed.
    """

    def __init__(self, folder: RunFolder) -> None:
        check_installed()
        from torch.utils.tensorboard import SummaryWriter

        self._begin = partial(SummaryWriter, str(folder.path / "tensorboard"))
        self._writer = self._begin()

    def resume(self, step: int) -> None:
        """Go on from a step: what an earlier file has of it and of later ones is shown no more."""
        self._writer.close()
        self._writer = self._begin(purge_step=step)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write a step's finite values."""
        for name, value in values.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


def check_installed() -> None:
    """Refuse early when tensorboard is missing.

    Raises:
        MachineError: If it is.
    """
    from importlib.util import find_spec

    if find_spec("tensorboard") is None:
        raise MachineError(
            "track names tensorboard, which is not installed",
            remedy="pip install rlvr-core[tensorboard], or take it out of track",
        )
