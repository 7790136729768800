"""Shared parts of trackers of other tools: packages that may be missing, and steps shown once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from rlvr_core.api import MachineError
from rlvr_core.record.files import write_atomic


def need(package: str, tracker: str, install: str) -> None:
    """Refuse when a tracker's package is missing.

    Args:
        package: The package that it imports.
        tracker: Full name of the tracker.
        install: What ``pip install`` takes to bring the package.

    Raises:
        MachineError: If it is.
    """
    if find_spec(package) is None:
        raise MachineError(
            f"tracker {tracker} needs {package}, which is not installed",
            where="track",
            remedy=f"pip install '{install}', or take it out of track",
        )


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """The values that can be drawn."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


class Progress:
    """The last step that was shown, and what names the run at the other tool, in a file.

    The steps that a resumed run takes again are the same: what was shown of them stays.

    Args:
        folder: The tracker's folder in that of the run.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "progress.json"
        self.step, self.run_id = -1, ""
        if self._path.is_file():
            saved = json.loads(self._path.read_text(encoding="utf-8"))
            self.step, self.run_id = int(saved["step"]), str(saved["run_id"])

    def begin(self, run_id: str) -> None:
        """Note what names the run."""
        self.run_id = run_id
        self._write()

    def due(self, step: int) -> bool:
        """Whether a step was not shown yet."""
        return step > self.step

    def done(self, step: int) -> None:
        """Note that a step was shown."""
        self.step = step
        self._write()

    def _write(self) -> None:
        write_atomic(self._path, json.dumps({"step": self.step, "run_id": self.run_id}))
