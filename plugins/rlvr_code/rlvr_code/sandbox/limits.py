"""Limits of a program, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

MIB = 1 << 20

Reason = Literal["exit", "signal", "cpu", "wall", "files", "killed", "broke"]
"""Why a program ended: by itself, by a signal, at its limit of processor or clock time or of the
number of its files, because the caller ended it, or because it took the sandbox down with it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run of a program.

    Attributes:
        cpu_seconds: Processor time of each process; counted in whole seconds, upwards.
        wall_seconds: Time by the clock, until everything is killed.
        memory_mb: Address space beyond the interpreter's own, of all processes together: each
            may have its share.
        processes: Processes, itself included. With 1 it can start none; more needs a backend with
            process namespaces.
        threads: Threads besides the first of each process.
        files: Open files.
        file_mb: Size of one file.
        output_kb: Bytes of standard output that are kept, and as many of standard error: three
            quarters from the start, a quarter from the end.
    """

    cpu_seconds: float = 10.0
    wall_seconds: float = 15.0
    memory_mb: int = 512
    processes: int = 1
    threads: int = 32
    files: int = 64
    file_mb: int = 16
    output_kb: int = 64

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0 and name != "threads":
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")

    def as_job(self) -> dict[str, int | float]:
        """Return the limits in the format of the processes inside."""
        return {
            "cpu_seconds": self.cpu_seconds,
            "wall_seconds": self.wall_seconds,
            "memory_bytes": self.memory_mb * MIB,
            "processes": self.processes,
            # the first process inside and the keeper belong to the same user
            "tasks": self.processes * (1 + self.threads) + 2,
            "files": self.files,
            "file_bytes": self.file_mb * MIB,
            "output_bytes": self.output_kb * 1024,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one run.

    Attributes:
        stdout: Standard output, a note in place of what was too much.
        stderr: Standard error likewise.
        exit: Exit status; negative for the signal that ended it.
        reason: Why it ended.
        seconds: By the clock.
        cpu_seconds: Of the processor.
        peak_mb: Most memory it had resident, the interpreter's included.
        dropped: Bytes left out of ``stdout`` and ``stderr``.
    """

    stdout: str
    stderr: str
    exit: int
    reason: Reason
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mb: float = 0.0
    dropped: tuple[int, int] = field(default=(0, 0))

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with status 0."""
        return self.reason == "exit" and self.exit == 0
