"""Runs of a sweep as processes of this machine, some of them at once."""

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
from rlvr_core.builtin.sweeps.state import forget_fault, is_done, note_fault

if TYPE_CHECKING:
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


@dataclass(slots=True)
class _Started:
    run: Run
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    lock: int
    slot: int


def carry_out(work: Work, parallel: int, say: Callable[[str], None]) -> None:
    """Start runs until there are no more, and wait for them.

    Args:
        work: Where they come from.
        parallel: Processes at once.
        say: Where progress is told.

    Raises:
        KeyboardInterrupt: After every process that was started has ended.
    """
    running: list[_Started] = []
    cards = shares(given_gpus() if parallel > 1 else [], parallel)
    try:
        while True:
            while len(running) < parallel and (run := work.next()) is not None:
                slot = min(set(range(parallel)) - {one.slot for one in running})
                started = _start(run, slot, cards[slot], say)
                if started is None:
                    work.ended(run)
                else:
                    running.append(started)
            if not running:
                return
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                code = _close(one)
                note_fault(one.run, code)
                say(f"{one.run.label}: {'finished' if code == 0 else 'failed'}")
                work.ended(one.run)
            time.sleep(POLL)
    finally:
        _stop(running)


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


def _start(run: Run, slot: int, cards: str | None, say: Callable[[str], None]) -> _Started | None:
    """Start the process of a run; None if it is another process's, or was finished by one."""
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
    folders = list_runs(run.folder)
    if folders:
        words = ["--resume", str(folders[0].path.resolve())]
    else:
        words = [str(run.file), "--set", option("run.dir", escape(str(run.folder)))]
    module = [sys.executable, "-m", "rlvr_core.builtin.sweeps.child", str(os.getpid())]
    log = run.log.open("ab")
    process = subprocess.Popen(
        [*module, "run", *words, "--display", "plain"],
        env=os.environ | ({} if cards is None else {VISIBLE: cards}),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C reaches it by way of this process alone
    )
    say(f"{run.label}: {'goes on' if folders else 'started'}")
    return _Started(run, process, log, lock, slot)


def _close(one: _Started) -> int:
    """Give back what a process that has ended had; returns its exit code."""
    one.log.close()
    os.close(one.lock)
    return one.process.wait()


def _stop(running: Sequence[_Started]) -> None:
    """End processes, at once if an interrupt comes or they take too long."""
    for one in running:
        one.process.terminate()
    until = time.monotonic() + PATIENCE
    with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
        for one in running:
            one.process.wait(max(0, until - time.monotonic()))
    for one in running:
        one.process.kill()
        _close(one)
