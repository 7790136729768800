"""Executes the runs of a sweep, some in parallel; and local processes as a place for them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol

from rlvr_core.api import RunError
from rlvr_core.api.services import escape, list_runs, lock_folder, option
from rlvr_core.builtin.sweeps.state import CONFIG_FILE, forget_fault, is_done, note_fault

if TYPE_CHECKING:
    from pathlib import Path

    from rlvr_core.builtin.sweeps.trials import Run

VISIBLE = "CUDA_VISIBLE_DEVICES"
POLL = 0.05
PATIENCE = 60
"""Seconds for processes to end after they are asked to."""

REMEDY = "another rlvr sweep works there: wait until it has ended, or stop it"


class Work(Protocol):
    """A source of runs."""

    def next(self) -> Run | None:
        """Return a run to start now; None if there is none until another one has ended."""

    def ended(self, run: Run) -> None:
        """Handle the end of a run, whatever its result."""


class Job(Protocol):
    """A run that was started somewhere."""

    def poll(self) -> int | None:
        """Return the exit code of its process; None while it runs."""

    def why(self) -> str | None:
        """Return a reason for its end that its process could not log itself, if there is one."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """Kill it, and release its resources."""


class Place(Protocol):
    """Where runs are executed."""

    def room(self) -> int:
        """Return how many runs may execute at once."""

    def start(self, run: Run) -> Job:
        """Start a run, or resume the one in its folder."""


@dataclass(slots=True)
class _Started:
    run: Run
    job: Job
    lock: int


def carry_out(work: Work, place: Place, say: Callable[[str], None]) -> None:
    """Start runs until there are no more, and wait for them.

    Args:
        work: The source of runs.
        place: Where they are executed.
        say: Called with progress messages.

    Raises:
        KeyboardInterrupt: After every started run has ended.
    """
    running: list[_Started] = []
    try:
        while True:
            while len(running) < place.room() and (run := work.next()) is not None:
                started = _start(run, place, say)
                if started is None:
                    work.ended(run)
                else:
                    running.append(started)
            if not running:
                return
            for one in list(running):
                code = one.job.poll()
                if code is None:
                    continue
                running.remove(one)
                note_fault(one.run, code, one.job.why())
                _close(one)
                say(f"{one.run.label}: {'finished' if code == 0 else 'failed'}")
                work.ended(one.run)
            time.sleep(POLL)
    finally:
        _stop(running)


class Here:
    """Processes of this machine, which share its GPUs.

    Args:
        parallel: Maximum number of processes at once.
    """

    def __init__(self, parallel: int) -> None:
        self._cards = shares(given_gpus() if parallel > 1 else [], parallel)
        self._free = set(range(parallel))
        self._parallel = parallel

    def room(self) -> int:
        """Return the maximum number of processes."""
        return self._parallel

    def start(self, run: Run) -> Job:
        """Start the process of a run."""
        slot = min(self._free)
        self._free.remove(slot)
        cards = self._cards[slot]
        log = run.log.open("ab")
        process = subprocess.Popen(
            child_command(run.folder),
            env=os.environ | ({} if cards is None else {VISIBLE: cards}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C only reaches it through this process
        )
        return _Process(process, log, lambda: self._free.add(slot))


@dataclass(slots=True)
class _Process:
    """A process of this machine."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]
    give_back: Callable[[], None]

    def poll(self) -> int | None:
        return self.process.poll()

    def why(self) -> str | None:
        return None

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.give_back()


def child_command(folder: Path) -> list[str]:
    """Return the command that starts the run in a trial's folder, or resumes it.

    Its process ends with the one that starts it.
    """
    folders = list_runs(folder)
    if folders:
        words = ["--resume", str(folders[0].path.resolve())]
    else:
        file = str(folder / CONFIG_FILE)
        words = [file, "--set", option("run.dir", escape(str(folder)))]
    module = [sys.executable, "-m", "rlvr_core.builtin.sweeps.child", str(os.getpid())]
    return [*module, "run", *words, "--display", "plain"]


def shares(gpus: Sequence[str], slots: int) -> list[str | None]:
    """Return ``CUDA_VISIBLE_DEVICES`` of each of ``slots`` parallel processes.

    Each gets the same number of GPUs; if there are fewer GPUs than processes, some share one.
    Without GPUs it stays unchanged.
    """
    if not gpus:
        return [None] * slots
    each = max(1, len(gpus) // slots)
    return [
        ",".join(gpus[(slot * each) % len(gpus) : (slot * each) % len(gpus) + each])
        for slot in range(slots)
    ]


def given_gpus() -> list[str]:
    """Return the GPUs of this process, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch

    shown = os.environ.get(VISIBLE)
    if shown is None:
        return [str(number) for number in range(torch.cuda.device_count())]
    return [one.strip() for one in shown.split(",")][: torch.cuda.device_count()]


def _start(run: Run, place: Place, say: Callable[[str], None]) -> _Started | None:
    """Start a run; return None if another process has it, or has finished it."""
    run.prepare()
    try:
        lock = lock_folder(run.folder, REMEDY)
    except RunError:
        say(f"{run.label}: another rlvr sweep works on it; left to that one")
        return None
    if is_done(run):
        os.close(lock)
        return None
    forget_fault(run)
    begun = bool(list_runs(run.folder))
    started = _Started(run, place.start(run), lock)
    say(f"{run.label}: {'goes on' if begun else 'started'}")
    return started


def _close(started: _Started) -> None:
    """Release the resources of a run that has ended."""
    started.job.kill()
    os.close(started.lock)


def _stop(running: Sequence[_Started]) -> None:
    """End runs; kill them on a further interrupt or if they take too long."""
    for one in running:
        one.job.terminate()
    until = time.monotonic() + PATIENCE
    with contextlib.suppress(KeyboardInterrupt):
        while time.monotonic() < until and any(one.job.poll() is None for one in running):
            time.sleep(POLL)
    for one in running:
        _close(one)
