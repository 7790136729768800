"""Keeps checkpoints that a watcher has yet to evaluate from being rotated away.

A held checkpoint is a folder of hard links beside ``checkpoints/``, made when the watcher first
sees it: the files stay on disk until the watcher releases them, whatever ``checkpoint.keep``
says. Each watcher has its own folder, which survives a kill, so that the restarted watcher finds
the checkpoints it had seen. The name starts with a dot, and a run's mirror skips such folders.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from rlvr_core.api import ConfigError
from rlvr_core.eval.model_ref import HELD
from rlvr_core.record.checkpoints import COMPLETE, CheckpointStore
from rlvr_core.record.rundir import RunFolder


class Holder:
    """The checkpoints that one watcher holds.

    Args:
        out: The watcher's folder of results, which identifies it.
    """

    def __init__(self, out: Path) -> None:
        digest = hashlib.sha256(os.fsencode(out.resolve())).hexdigest()
        self._name = f"{HELD}{digest[:8]}"

    def available(self, run: RunFolder) -> dict[int, Path]:
        """Return the run's checkpoints by step: held ones, and complete ones that are not held."""
        complete = CheckpointStore(run.checkpoints, 1).complete()
        steps = {step_of(path): path for path in complete}
        folder = run.path / self._name
        if folder.is_dir():
            steps |= {step_of(path): path for path in CheckpointStore(folder, 1).complete()}
        return dict(sorted(steps.items()))

    def hold(self, run: RunFolder, checkpoint: Path) -> Path | None:
        """Hold a checkpoint.

        Returns:
            The folder of links; the checkpoint itself if it is held already, or if the file system
            has no hard links; None if the run has removed it.
        """
        folder = run.path / self._name
        if checkpoint.parent == folder:
            return checkpoint
        held, temporary = folder / checkpoint.name, folder / f".tmp-{checkpoint.name}"
        try:
            shutil.rmtree(temporary, ignore_errors=True)  # left by a watcher that was killed
            for path in _seal_last(checkpoint):
                target = temporary / path.relative_to(checkpoint)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.hardlink_to(path)
            shutil.rmtree(held, ignore_errors=True)
            temporary.rename(held)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            self._tidy(folder)
            return checkpoint if (checkpoint / COMPLETE).is_file() else None
        return held

    def release(self, run: RunFolder, step: int) -> None:
        """Release a checkpoint; does nothing if it is not held."""
        folder = run.path / self._name
        shutil.rmtree(folder / f"step{step:06d}", ignore_errors=True)
        self._tidy(folder)

    @staticmethod
    def _tidy(folder: Path) -> None:
        with contextlib.suppress(OSError):  # it is not empty, or not there
            folder.rmdir()


def step_of(checkpoint: Path) -> int:
    """Return the step of a checkpoint's folder, ``step000020``."""
    return int(checkpoint.name.removeprefix("step"))


def run_of(checkpoint: Path) -> RunFolder | None:
    """Return the run of a checkpoint folder or run folder; None for any other folder."""
    real = checkpoint.resolve()
    above = real.parent.name
    inside = re.match(r"step\d{6,}$", real.name) and above.startswith(("checkpoints", HELD))
    try:
        return RunFolder.open(real.parent.parent if inside else real)
    except ConfigError:
        return None


def _seal_last(checkpoint: Path) -> Iterator[Path]:
    """Yield a checkpoint's files, the seal last.

    A run removes the seal first, so whoever still gets the seal has every other file.
    """
    yield from (path for path in checkpoint.rglob("*") if path.is_file() and path.name != COMPLETE)
    yield checkpoint / COMPLETE
