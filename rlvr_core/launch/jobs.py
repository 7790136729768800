"""The book of jobs: what was submitted where, with which config, written by itself (T90).

One JSON line for each job in ``$XDG_DATA_HOME/rlvr/jobs.jsonl``, appended under a lock, so that
commands at the same time lose nothing. A launcher's options are kept with it, without secrets:
they are all that is needed to ask for the job again.
"""

from __future__ import annotations

import difflib
import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rlvr_core.errors import ConfigError, MachineError
from rlvr_core.types import Json


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

    def add(self, job: Job) -> None:
        """Write a job down.

        Raises:
            MachineError: If it cannot be written.
        """
        line = json.dumps(asdict(job), ensure_ascii=False) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if file.seek(0, os.SEEK_END) > 0:
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":  # a line that a full disk cut off stays alone
                        file.write(b"\n")
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise MachineError(
                f"job {job.job} was submitted, and cannot be written down: {error.strerror}",
                where=str(self.path),
            ) from error

    def jobs(self) -> list[Job]:
        """Every job, newest first; one that was written twice counts as it was last."""
        found: dict[tuple[str, str], Job] = {}
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        for line in lines:
            try:
                job = Job(**json.loads(line))
            except (ValueError, TypeError):
                continue  # a line that a full disk cut off
            found[job.launcher, job.job] = job
        return sorted(found.values(), key=lambda job: job.submitted, reverse=True)

    def find(self, text: str) -> Job:
        """The job a user means.

        Args:
            text: ``last``, a job's name, or the beginning of one; or a run's name, whose newest
                job it is.

        Raises:
            ConfigError: If there is none, or there are several.
        """
        jobs = self.jobs()
        if text == "last" and jobs:
            return jobs[0]
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
        near = difflib.get_close_matches(text, [job.job for job in jobs], n=3, cutoff=0.5)
        raise ConfigError(
            f"there is no job '{text}'" if jobs else "no job was submitted from here yet",
            where=str(self.path),
            remedy=f"did you mean: {', '.join(near)}" if near else "see: rlvr jobs list",
        )


def default_path() -> Path:
    """This user's book."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "rlvr" / "jobs.jsonl"
