"""The job book: an automatic record of what was submitted where, with which config.

Each job is one JSON line in ``$XDG_DATA_HOME/rlvr/jobs.jsonl``, appended under a lock, so that
concurrent commands lose nothing. It includes the launcher's options, without secrets, which suffice
to query the job later.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError, Json, MachineError
from rlvr_core.record.text import Redactor

LEAST = 1 << 16
"""Free bytes required to record a job."""


@dataclass(frozen=True, slots=True)
class Job:
    """A submitted job.

    Attributes:
        job: Name or number of the job at its scheduler.
        launcher: Full name of the launcher.
        name: ``run.name``.
        config: Absolute path of the config file.
        submitted: Seconds since 1970.
        options: The launcher's options.
        runs: Location of its run folders, a URI or a folder; empty if unknown.
        details: Further data of the launcher.
    """

    job: str
    launcher: str
    name: str
    config: str
    submitted: float = field(default_factory=time.time)
    options: Mapping[str, Json] = field(default_factory=dict)
    runs: str = ""
    details: Mapping[str, Json] = field(default_factory=dict)


class JobBook:
    """The file that records jobs.

    Args:
        path: The file; the user's default if omitted.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()

    def ready(self) -> None:
        """Check, before a job is submitted, that it can be recorded.

        Raises:
            MachineError: If it cannot.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab"):
                pass
            free = os.statvfs(self.path.parent)
        except OSError as error:
            raise MachineError(
                f"the book of jobs cannot be written: {error.strerror}; nothing was submitted",
                where=str(self.path),
                remedy="make it writable, or set XDG_DATA_HOME to a folder that is",
            ) from error
        if free.f_bavail * free.f_frsize < LEAST:
            raise MachineError(
                "the disk with the book of jobs is full; nothing was submitted",
                where=str(self.path),
                remedy="make room, or set XDG_DATA_HOME to a folder on another disk",
            )

    def add(self, job: Job) -> None:
        """Record a job, without secrets.

        Raises:
            MachineError: If the file cannot be written; the message has the line to add by hand.
        """
        hide = Redactor()
        line = json.dumps(_clean(hide.tree(asdict(job)), hide), ensure_ascii=False) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                end = file.seek(0, os.SEEK_END)
                if end > 0:
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":  # an interrupted line stays on its own
                        line = "\n" + line
                try:
                    _write(file, line.encode())
                    os.fsync(file.fileno())
                except OSError:
                    with contextlib.suppress(OSError):
                        file.truncate(end)  # the whole line or nothing
                    raise
        except OSError as error:
            raise MachineError(
                f"job {job.job} was submitted, and cannot be written down: {error.strerror}",
                where=str(self.path),
                remedy=(
                    "it continues without that; for rlvr jobs to know it, append this line there:",
                    line.strip(),
                ),
            ) from error

    def jobs(self) -> list[Job]:
        """List all jobs, newest first; for a job recorded twice, the last record counts.

        Raises:
            MachineError: If the file exists but cannot be read.
        """
        return self.read()[0]

    def read(self) -> tuple[list[Job], list[int]]:
        """Return the jobs, as ``jobs`` does, and the numbers of invalid lines."""
        found: dict[tuple[str, str], Job] = {}
        damaged = []
        try:
            lines = self.path.read_bytes().split(b"\n")  # not at Unicode line separators
        except FileNotFoundError:
            return [], []
        except OSError as error:
            what = f"the book of jobs cannot be read: {error.strerror}"
            raise MachineError(what, where=str(self.path)) from error
        for number, line in enumerate(lines, 1):
            job = _job(line)
            if job is not None:
                found[job.launcher, job.job] = job
            elif line.strip():
                damaged.append(number)
        return sorted(found.values(), key=lambda job: job.submitted, reverse=True), damaged

    def find(self, text: str) -> Job:
        """Find the job a user names.

        Args:
            text: ``last``, a job's name or a prefix of it, or a run's name (for its newest job).

        Raises:
            ConfigError: If there is none, or there are several.
        """
        jobs, damaged = self.read()
        if text == "last" and jobs:
            return jobs[0]
        if not text:
            raise ConfigError("which job?", remedy="say its name, or 'last'; see: rlvr jobs list")
        for found in (
            [job for job in jobs if job.job == text],
            [job for job in jobs if job.name == text][:1],
            [job for job in jobs if job.job.startswith(text)],
        ):
            if len(found) > 1:
                names = ", ".join(job.job for job in found[:5])
                raise ConfigError(f"'{text}' could be several jobs", remedy=f"say one of: {names}")
            if found:
                return found[0]
        unread = f"; {_lines(damaged)} there cannot be read" if damaged else ""
        near = difflib.get_close_matches(text, [job.job for job in jobs], n=3, cutoff=0.5)
        raise ConfigError(
            (f"there is no job '{text}'" if jobs else "no job was submitted from here yet")
            + unread,
            where=str(self.path),
            remedy=f"did you mean: {', '.join(near)}" if near else "see: rlvr jobs list",
        )


def _write(file: io.FileIO, data: bytes) -> None:
    while data:
        data = data[file.write(data) or 0 :]


def _job(line: bytes) -> Job | None:
    """Parse the job of a line, ignoring fields of later versions; None if it is invalid."""
    try:
        data = json.loads(line)
        known = {field.name: data[field.name] for field in fields(Job) if field.name in data}
        job = Job(**known)
    except (ValueError, TypeError, RecursionError):
        return None
    texts = (job.job, job.launcher, job.name, job.config, job.runs)
    if not all(isinstance(text, str) for text in texts) or not job.job:
        return None
    if not isinstance(job.options, dict) or not isinstance(job.details, dict):
        return None
    return job if isinstance(job.submitted, int | float) else None


def _clean(value: Any, hide: Redactor) -> Any:
    """Remove secrets from the texts of a value whose secrets by key are already removed."""
    if isinstance(value, dict):
        return {key: _clean(item, hide) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item, hide) for item in value]
    return hide.text(value) if isinstance(value, str) else value


def damaged_words(damaged: Sequence[int], path: Path) -> str:
    """Describe lines that are no valid jobs."""
    return f"{_lines(damaged)} of {path} cannot be read, and may have been a job"


def _lines(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
    return f"line {shown}" if len(numbers) == 1 else f"lines {shown}"


def default_path() -> Path:
    """Return the path of the user's job book."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "rlvr" / "jobs.jsonl"
