"""The runs under a folder: their table, and which are refused."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError, RlvrError
from rlvr_core.record.manifest import Manifest
from rlvr_core.toolkit import RunFolder, RunView, finite, list_runs, looks_like_run, parse_line

TAIL = 256_000
"""Bytes at the end of ``metrics.jsonl`` that the table reads."""
KEPT = 16
"""Maximum runs whose records stay in memory."""
LAST = 10
"""Steps that the table's means are over."""


class MissingError(RlvrError):
    """There is no such run, group or page."""


class OutsideError(RlvrError):
    """A run, or one of its files, is a link to a place outside the root."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table of runs.

    Attributes:
        name: Name of the run's folder.
        outcome: Outcome as in ``rlvr show``, or ``refused``.
        steps: Steps done.
        reward: Mean reward of the last steps; None if unknown.
        pass_rate: Mean pass rate of the last steps; None if unknown.
        started: Start, as ISO time; empty if unknown.
        seconds: Time from start to end, or until now while it is running.
        fault: The fault of its records, if any.
    """

    name: str
    outcome: str
    steps: int = 0
    reward: float | None = None
    pass_rate: float | None = None
    started: str = ""
    seconds: float | None = None
    fault: str = ""

    def data(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


class Runs:
    """The runs under one folder, or that folder's own run.

    Args:
        root: A folder of run folders, or one run's folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.alone = looks_like_run(self.root)
        self._lock = threading.Lock()
        self._views: dict[str, tuple[Any, RunView]] = {}

    def folders(self) -> list[RunFolder]:
        """List the runs, newest first."""
        return [RunFolder(self.root)] if self.alone else list_runs(self.root)

    def open(self, name: str) -> RunFolder:
        """Return the folder of a run.

        Raises:
            MissingError: If there is no run of that name under the root.
            OutsideError: If it, or a file of it, is a link to a place outside.
        """
        path = self.root if self.alone else self.root / name
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise MissingError("there is no such run")
        if self.alone and name != self.root.name:
            raise MissingError("there is no such run")
        try:
            there = looks_like_run(path)
        except (OSError, ValueError):  # a name that no folder can have
            there = False
        if not there:
            raise MissingError(f"there is no run '{name}' here")
        if link := next(self._outside(path), None):
            raise OutsideError(
                f"{link} is a link to a place outside of {self.root.name}",
                remedy="copy what it points at into the run's folder",
            )
        return RunFolder(path)

    def view(self, folder: RunFolder) -> RunView:
        """Return the view of a run, a new one when its records have changed."""
        key = (*map(_stat, _records(folder)),)
        with self._lock:
            known = self._views.get(folder.name)
            if known is None or known[0] != key:
                self._views.pop(folder.name, None)
                self._views[folder.name] = known = key, RunView(folder)
                for oldest in list(self._views)[:-KEPT]:
                    del self._views[oldest]
            return known[1]

    def lines(self) -> Iterator[Line]:
        """Yield the lines of the table, newest run first."""
        for folder in self.folders():
            try:
                yield _line(self.open(folder.path.name))
            except RlvrError as error:
                yield Line(folder.path.name, "refused", fault=error.complaints[0].what)
            except (OSError, ValueError, TypeError, OverflowError) as error:
                yield Line(
                    folder.path.name, "unknown", fault=f"its records cannot be read: {error}"
                )

    def _outside(self, path: Path) -> Iterator[str]:
        """Yield the names of a run's files that are links to outside the root."""
        if not path.resolve().is_relative_to(self.root):
            yield path.name
        for place in (
            path,
            *(path / name for name in ("traces", "evals", "patches", "checkpoints")),
            *(path / "checkpoints").glob("step*"),
        ):
            try:
                entries = list(os.scandir(place))
            except OSError:
                continue
            for entry in entries:
                if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(self.root):
                    yield f"{path.name}/{Path(entry.path).relative_to(path)}"


SORTS: Mapping[str, Callable[[Line], Any]] = {
    "started": lambda line: line.started,
    "name": lambda line: line.name,
    "outcome": lambda line: line.outcome,
    "steps": lambda line: line.steps,
    "reward": lambda line: float("-inf") if line.reward is None else line.reward,
    "pass rate": lambda line: float("-inf") if line.pass_rate is None else line.pass_rate,
    "time": lambda line: -1.0 if line.seconds is None else line.seconds,
}
"""Sort keys of the table of runs."""


def chosen(lines: list[Line], text: str, outcome: str, sort: str, *, down: bool) -> list[Line]:
    """Return the lines of the table that fit, sorted.

    Args:
        lines: All lines, newest run first.
        text: Part of a name; case is ignored.
        outcome: An outcome; empty for any.
        sort: A key of ``SORTS``.
        down: Whether the highest comes first.
    """
    fitting = [
        line
        for line in lines
        if text.lower() in line.name.lower() and outcome in ("", line.outcome)
    ]
    if sort != "started" or not down:
        fitting.sort(key=SORTS[sort], reverse=down)
    return fitting


def _records(folder: RunFolder) -> list[Path]:
    evaluations = folder.evals / "index.jsonl"
    return [folder.manifest, folder.resolved, folder.metrics, evaluations, folder.checkpoints]


def _stat(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def state(folder: RunFolder) -> str:
    """Return a text that differs when a run's records have changed."""
    rollouts = folder.traces / "rollouts.jsonl"
    stats = [_stat(path) for path in (*_records(folder), rollouts, folder.traces)]
    return json.dumps([stats, RunView(folder).outcome])


def _line(folder: RunFolder) -> Line:
    fault = ""
    try:
        manifest = Manifest.read(folder).fields
    except ConfigError as error:
        manifest, fault = {}, error.complaints[0].what
        if not folder.manifest.exists():
            fault = "there is no run.json: it is starting, or lost it"
    outcome = RunView(folder).outcome
    rows = _last_rows(folder.metrics, _stat(folder.metrics))
    counted = [row["step"] + 1 for row in rows[-1:]]
    steps = manifest.get("steps")
    started = manifest.get("started")
    return Line(
        folder.path.name,
        outcome,
        max([steps if isinstance(steps, int) else 0, *counted]),
        _mean(rows, "reward/mean"),
        _mean(rows, "pass_rate"),
        started if isinstance(started, str) else "",
        _seconds(started, manifest.get("ended"), outcome),
        fault,
    )


@lru_cache(maxsize=5000)
def _last_rows(path: Path, _stat: tuple[int, int] | None) -> list[dict[str, Any]]:
    """Return the last rows of ``metrics.jsonl``, with the columns that the table shows."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - TAIL))
            lines = file.read().splitlines(keepends=True)
    except OSError:
        return []
    whole = lines[0 if end <= TAIL else 1 :]
    rows = [row for raw in whole[-LAST - 1 :] if (row := parse_line(raw)) is not None]
    columns = ("step", "reward/mean", "pass_rate")
    selected = [{name: row.get(name) for name in columns} for row in rows]
    return [row for row in selected if isinstance(row["step"], int)]


def _mean(rows: list[dict[str, Any]], name: str) -> float | None:
    known = [value for row in rows[-LAST:] if (value := finite(row.get(name))) is not None]
    return sum(known) / len(known) if known else None


def _seconds(started: Any, ended: Any, outcome: str) -> float | None:
    try:
        first = datetime.fromisoformat(started)
        last = datetime.now(UTC) if outcome == "running" else datetime.fromisoformat(ended)
        passed = (last - first).total_seconds()
    except (TypeError, ValueError):
        return None
    return passed if passed >= 0 else None
