"""The book of jobs: what was submitted where, with which config, written by itself (T90).

One JSON line for each job in ``$XDG_DATA_HOME/rlvr/jobs.jsonl``, appended under a lock, so that
commands at the same time lose nothing. A launcher's options are kept with it, without secrets:
they are all that is needed to ask for the job again.
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
from rlvr_core.api.services import Redactor

LEAST = 1 << 16
"""Bytes that have to be free for a job to be written down."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that was submitted.

    Attributes:
        job: Its name or number where it runs.
        launcher: Full name of the launcher.
        name: ``run.name``.
        config: The config's file, absolute.
        submitted: Seconds since 1970.
        options: The launcher's options.
        runs: Where its run folders are: a URI, or a folder; empty where that is not known.
        details: What else the launcher wants to remember.
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
    """The file that jobs are written down in.

    Args:
        path: The file; that of this user when left out.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()

    def ready(self) -> None:
        """Make sure, before something is submitted, that it can be written down.

        Raises:
            MachineError: If it could not.
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
        """Write a job down, without secrets.

        Raises:
            MachineError: If it cannot be written; it says what to write there by hand.
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
                    if file.read(1) != b"\n":  # a line that something cut off stays alone
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
                    "it goes on without that; for rlvr jobs to know it, append this line there:",
                    line.strip(),
                ),
            ) from error

    def jobs(self) -> list[Job]:
        """Every job, newest first; one that was written twice counts as it was last.

        Raises:
            MachineError: If the book is there and cannot be read.
        """
        return self.read()[0]

    def read(self) -> tuple[list[Job], list[int]]:
        """The jobs, as ``jobs`` has them, and the numbers of lines that are none."""
        found: dict[tuple[str, str], Job] = {}
        damaged = []
        try:
            lines = self.path.read_bytes().split(b"\n")  # and not at whatever Unicode calls a line
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
        """The job a user means.

        Args:
            text: ``last``, a job's name, or the beginning of one; or a run's name, whose newest
                job it is.

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
    """The job of a line; what later versions write besides is left alone."""
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
    """A value whose secrets by key are out already, without those in its texts."""
    if isinstance(value, dict):
        return {key: _clean(item, hide) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item, hide) for item in value]
    return hide.text(value) if isinstance(value, str) else value


def damaged_words(damaged: Sequence[int], path: Path) -> str:
    """What to tell of lines that are no jobs."""
    return f"{_lines(damaged)} of {path} cannot be read, and may have been a job"


def _lines(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
    return f"line {shown}" if len(numbers) == 1 else f"lines {shown}"


def default_path() -> Path:
    """This user's book."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "rlvr" / "jobs.jsonl"
