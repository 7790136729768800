"""A run's folder: where everything about one run lies, and how to find one again."""

from __future__ import annotations

import difflib
import json
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError
from rlvr_core.config.dialect import write
from rlvr_core.record.files import write_atomic, write_failed
from rlvr_core.record.text import Redactor

_FOLDER_NAME = re.compile(r"^(?P<name>.+)-(?P<time>\d{8}-\d{6})(?:-(?P<copy>\d+))?$")
_MARKS = ("run.json", "resolved.yaml", "config.yaml", "metrics.jsonl", "traces")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run; only paths, no state.

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
        """Make ``<root>/<name>-YYYYMMDD-HHMMSS`` with both configurations in it.

        Two runs that start in one second get two folders: the second's name ends in ``-2``.
        Secrets in either configuration are taken out.

        Args:
            root: Folder of run folders; made if missing.
            name: ``run.name`` of the configuration (T88: never a file's name).
            config_text: The user's configuration as written.
            resolved: The whole configuration, every default filled in.
            now: Seconds since the epoch; the current time when left out.

        Raises:
            RunError: If it cannot be written; nothing is then left behind.
        """
        redact = Redactor()
        reserved = _make_folder(Path(root), name, time.time() if now is None else now)
        # filled beside it and moved over it: a run's folder is whole from its first moment
        folder = cls(reserved.with_name(f".{reserved.name}.new"))
        try:
            for part in (folder.traces, folder.checkpoints, folder.evals):
                part.mkdir(parents=True)
            write_atomic(folder.config, redact.text(config_text))
            folder.configure(resolved)
            folder.path.rename(reserved)
        except BaseException as error:
            shutil.rmtree(folder.path, ignore_errors=True)
            shutil.rmtree(reserved, ignore_errors=True)
            if isinstance(error, OSError):
                raise write_failed(error, reserved) from error
            raise
        return cls(reserved)

    def configure(self, resolved: Mapping[str, Any]) -> None:
        """Write the whole configuration, secrets taken out; anew when a run is lengthened, say."""
        write_atomic(self.resolved, write(Redactor().tree(resolved)))

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """An existing run's folder.

        Raises:
            ConfigError: If there is no folder, or it does not look like a run's.
        """
        path = Path(path)
        if not path.is_dir():
            raise ConfigError(f"there is no run folder '{path}'", remedy="list them: ls runs")
        if not _looks_like_run(path):
            raise ConfigError(
                f"'{path}' is not a run's folder",
                remedy=f"a run's folder holds one of: {', '.join(_MARKS)}",
            )
        return cls(path)

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.resolve().name

    @property
    def config(self) -> Path:
        """The user's configuration as written."""
        return self.path / "config.yaml"

    @property
    def resolved(self) -> Path:
        """The whole configuration; can itself be run."""
        return self.path / "resolved.yaml"

    @property
    def manifest(self) -> Path:
        """Versions, hardware, data, outcome."""
        return self.path / "run.json"

    @property
    def results(self) -> Path:
        """The result in a page."""
        return self.path / "RESULTS.md"

    @property
    def metrics(self) -> Path:
        """One line of numbers a step."""
        return self.path / "metrics.jsonl"

    @property
    def traces(self) -> Path:
        """Folder of trace, samples, rollouts and timing."""
        return self.path / "traces"

    @property
    def patches(self) -> Path:
        """Folder of git status and diffs."""
        return self.path / "patches"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def evals(self) -> Path:
        """Folder of evaluations."""
        return self.path / "evals"

    @property
    def started(self) -> tuple[float, int]:
        """Sort key by start: seconds since the epoch, then the number of a name taken twice."""
        match = _FOLDER_NAME.match(self.name)
        copy = int(match["copy"] or 1) if match else 1
        try:
            created = json.loads(self.manifest.read_text(encoding="utf-8"))["created"]
            return datetime.fromisoformat(created).timestamp(), copy
        except (OSError, ValueError, TypeError, KeyError):
            pass  # an older or half-broken folder: its name says when
        try:
            return time.mktime(time.strptime(match["time"], "%Y%m%d-%H%M%S")) if match else 0, copy
        except (ValueError, OverflowError):
            return 0, copy


def list_runs(root: str | Path) -> list[RunFolder]:
    """All runs under ``root``, newest first."""
    try:
        folders = [RunFolder(path) for path in Path(root).iterdir() if _looks_like_run(path)]
    except OSError:
        return []
    return sorted(folders, key=lambda folder: (folder.started, folder.name), reverse=True)


def find_run(text: str, root: str | Path = "runs", elsewhere: str = "--runs-dir DIR") -> RunFolder:
    """The run a user means.

    Args:
        text: ``last``, a path, a folder's name, a run's name (its newest run), or the beginning
            of either while only one run's name begins so.
        root: Folder of run folders.
        elsewhere: What a user writes to have another folder searched, for messages.

    Raises:
        ConfigError: If there is none, or the beginning fits runs of several names.
    """
    if not text:
        raise ConfigError("which run? none was named", remedy="say 'last', a name or a path")
    runs = list_runs(root)
    if text == "last":
        if not runs:
            raise ConfigError(
                f"there is no run in '{root}' yet",
                remedy=("start one: rlvr run CONFIG", f"or say where runs are: {elsewhere}"),
            )
        return runs[0]
    if "/" in text or (Path(text).is_dir() and _looks_like_run(Path(text))):
        return RunFolder.open(text)
    for fits in (_is_folder, _is_name, _begins):
        found = [run for run in runs if fits(run.name, text)]
        names = sorted({_run_name(run.name) for run in found})
        if len(names) > 1:
            raise ConfigError(
                f"'{text}' could be several runs",
                remedy="say one of: " + ", ".join(names[:8]) + (" …" if names[8:] else ""),
            )
        if found:
            return found[0]
    raise ConfigError(
        f"there is no run '{text}' in '{root}'", remedy=_suggestions(text, runs, elsewhere)
    )


def _suggestions(text: str, runs: list[RunFolder], elsewhere: str) -> list[str]:
    names = {run.name: run.name for run in runs} | {_run_name(r.name): r.name for r in runs}
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.5)
    if near:
        return ["did you mean: " + ", ".join(dict.fromkeys(names[name] for name in near))]
    if runs:
        return ["newest runs: " + ", ".join(run.name for run in runs[:3])]
    return [f"there are no runs there; {elsewhere} says where they are"]


def _is_folder(folder: str, text: str) -> bool:
    return folder == text


def _is_name(folder: str, text: str) -> bool:
    return _run_name(folder) == text


def _begins(folder: str, text: str) -> bool:
    return folder.startswith(text)


def _run_name(folder: str) -> str:
    match = _FOLDER_NAME.match(folder)
    return match["name"] if match else folder


def _looks_like_run(path: Path) -> bool:
    return (
        path.is_dir()
        and not path.name.startswith(".")  # one that was being made when its process died
        and any((path / mark).exists() for mark in _MARKS)
    )


def _make_folder(root: Path, name: str, now: float) -> Path:
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}"
    copy = 1
    try:
        root.mkdir(parents=True, exist_ok=True)
        while True:
            path = root / (stem if copy == 1 else f"{stem}-{copy}")
            try:
                path.mkdir()  # fails if it exists: two processes cannot both get it
            except FileExistsError:
                copy += 1
            else:
                return path
    except OSError as error:
        raise write_failed(error, root) from error
