"""Runs of a sweep, some of them at once; and processes of this machine as their place."""

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
"""Seconds in which processes have to end that were asked to."""

REMEDY = "another rlvr sweep works there: wait until it has ended, or stop it"


class Work(Protocol):
    """Where runs come from."""

    def next(self) -> Run | None:
        """Return a run to start now; None if there is none until another one has ended."""

    def ended(self, run: Run) -> None:
        """Learn that a run has ended, whatever it came to."""


class Job(Protocol):
    """A run that was started somewhere."""

    def poll(self) -> int | None:
        """Return the exit code of its process; None while it runs."""

    def why(self) -> str | None:
        """Return what its process could not write into the log itself, if there is such a thing."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it, and give back what it had."""


class Place(Protocol):
    """Where runs are carried out."""

    def room(self) -> int:
        """Return how many runs may be under way at once."""

    def start(self, run: Run) -> Job:
        """Start a run, or go on with the one that its folder has."""


@dataclass(slots=True)
class _Started:
    run: Run
    job: Job
    lock: int


def carry_out(work: Work, place: Place, say: Callable[[str], None]) -> None:
    """Start runs until there are no more, and wait for them.

    Args:
        work: Where they come from.
        place: Where they are carried out.
        say: Where progress is told.

    Raises:
        KeyboardInterrupt: After every run that was started has ended.
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
    """Processes of this machine, among which its GPUs are shared out.

    Args:
        parallel: How many at once.
    """

    def __init__(self, parallel: int) -> None:
        self._cards = shares(given_gpus() if parallel > 1 else [], parallel)
        self._free = set(range(parallel))
        self._parallel = parallel

    def room(self) -> int:
        """Return how many processes there may be."""
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
            start_new_session=True,  # Ctrl-C reaches it by way of this process alone
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
    """Return the command of the run in a folder of a trial: a new one, or the one to go on with.

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
    """Return what ``CUDA_VISIBLE_DEVICES`` is for each of some processes at once.

    They have as many GPUs each; where there are fewer GPUs than processes, some share one. Without
    GPUs it stays as it is.
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
    """Start a run; None if it is another process's, or was finished by one."""
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


def _close(one: _Started) -> None:
    """Give back what a run that has ended had."""
    one.job.kill()
    os.close(one.lock)


def _stop(running: Sequence[_Started]) -> None:
    """End runs, at once if an interrupt comes or they take too long."""
    for one in running:
        one.job.terminate()
    until = time.monotonic() + PATIENCE
    with contextlib.suppress(KeyboardInterrupt):
        while time.monotonic() < until and any(one.job.poll() is None for one in running):
            time.sleep(POLL)
    for one in running:
        _close(one)
