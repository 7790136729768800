"""Launchers whose jobs go on by themselves, and the status of such a job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from rlvr_core.api import Launcher

JobState = Literal["waiting", "running", "finished", "failed", "stopped", "unknown"]
"""State of a job; only the first two, and ``unknown``, may still change."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job.

    Attributes:
        state: In our words.
        detail: The status in the words of the scheduler or service.
    """

    state: JobState
    detail: str = ""


@runtime_checkable
class JobLauncher(Launcher, Protocol):
    """A launcher whose job goes on without the command that submitted it.

    Its ``submit`` writes each job down in the job book of rlvr-cluster; ``rlvr jobs`` makes it anew
    from the options written there, and names the job.
    """

    def status(self, job: str) -> JobStatus:
        """Return the status of a job.

        Raises:
            MachineError: If that cannot be known.
        """

    def logs(self, job: str) -> Iterable[str]:
        """Yield the lines that the job has printed so far."""

    def stop(self, job: str) -> None:
        """Ask the job to stop; it writes a checkpoint first."""
