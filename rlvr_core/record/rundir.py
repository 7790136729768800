"""The folder of a run, and the paths in it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError, MachineError
from rlvr_core.config.dialect import write
from rlvr_core.record.files import write_atomic, write_failed
from rlvr_core.record.text import Redactor

_MARKS = ("run.json", "resolved.yaml", "config.yaml", "metrics.jsonl", "traces")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run; holds only paths, no state.

    Attributes:
        path: The folder.
    """

    path: Path

    @classmethod
    def create(
        cls,
        root: str | Path,
        name: str,
        *,
        config_text: str,
        resolved: Mapping[str, Any],
        now: float | None = None,
    ) -> RunFolder:
        """Create ``<root>/<name>-YYYYMMDD-HHMMSS-<random>`` with both configurations in it.

        The random part keeps runs of one name apart that start in the same second on machines that
        do not see each other. Secrets are removed from both configurations.

        Args:
            root: Folder of run folders; created if missing.
            name: ``run.name`` of the configuration (never derived from a file's name).
            config_text: The user's configuration as written.
            resolved: The whole configuration, every default filled in.
            now: Seconds since the epoch; the current time if omitted.

        Raises:
            RunError: If it cannot be written; nothing is then left behind.
        """
        redact, start = Redactor(), time.localtime(now)
        stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S', start)}"
        path = Path(root) / f"{stem}-{os.urandom(3).hex()}"
        # written under another name and renamed, so that a run's folder is complete from the first
        # moment
        folder = cls(path.with_name(f".{path.name}.new"))
        try:
            for part in (folder.traces, folder.checkpoints, folder.evals):
                part.mkdir(parents=True)
            write_atomic(folder.config, redact.text(config_text))
            folder.configure(resolved)
            folder.path.rename(path)
        except BaseException as error:
            shutil.rmtree(folder.path, ignore_errors=True)
            if isinstance(error, OSError):
                raise write_failed(error, path) from error
            raise
        return cls(path)

    def configure(self, resolved: Mapping[str, Any]) -> None:
        """Write the resolved configuration without secrets, also when a run is lengthened."""
        write_atomic(self.resolved, write(Redactor().tree(resolved)))

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Open the folder of an existing run.

        Raises:
            ConfigError: If the folder does not exist, or is not a run's.
        """
        path = Path(path)
        if not path.is_dir():
            raise ConfigError(f"there is no run folder '{path}'", remedy="list them: ls runs")
        if not looks_like_run(path):
            raise ConfigError(
                f"'{path}' is not a run's folder",
                remedy=f"a run's folder holds one of: {', '.join(_MARKS)}",
            )
        return cls(path)

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.resolve().name

    @property
    def config(self) -> Path:
        """Path of the user's configuration as written."""
        return self.path / "config.yaml"

    @property
    def resolved(self) -> Path:
        """Path of the resolved configuration, which can itself be run."""
        return self.path / "resolved.yaml"

    @property
    def manifest(self) -> Path:
        """Path of ``run.json``: versions, hardware, data, outcome."""
        return self.path / "run.json"

    @property
    def results(self) -> Path:
        """Path of the one-page result."""
        return self.path / "RESULTS.md"

    @property
    def metrics(self) -> Path:
        """Path of the metrics, one line per step."""
        return self.path / "metrics.jsonl"

    @property
    def traces(self) -> Path:
        """Path of the folder with trace, samples, rollouts and timing."""
        return self.path / "traces"

    @property
    def patches(self) -> Path:
        """Path of the folder with git status and diffs."""
        return self.path / "patches"

    @property
    def checkpoints(self) -> Path:
        """Path of the folder with checkpoints."""
        return self.path / "checkpoints"

    @property
    def evals(self) -> Path:
        """Path of the folder with evaluations."""
        return self.path / "evals"


def looks_like_run(path: Path) -> bool:
    """Whether a folder is a run's, even if it is incomplete."""
    return (
        path.is_dir()
        and not path.name.startswith(".")  # left by a process that died while creating the folder
        and any((path / mark).exists() for mark in _MARKS)
    )


def check_writable(root: Path) -> None:
    """Refuse early a location where no run folder can be created."""
    existing = next(path for path in (root, *root.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise MachineError(
            f"run folders cannot be made in '{root}': '{existing}' is no folder one may write in",
            where="run.dir",
            remedy="set run.dir to one",
        )
