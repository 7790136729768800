"""Executes the runs of a sweep in processes of this machine, some in parallel."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from rlvr_cluster.sweeps.state import CONFIG_FILE, forget_fault, is_done, note_fault
from rlvr_core.api import RunError
from rlvr_core.config.layers import escape
from rlvr_core.script.train import option
from rlvr_core.toolkit import list_runs, lock_folder

if TYPE_CHECKING:
    from pathlib import Path

    from rlvr_cluster.sweeps.trials import Run

VISIBLE = "CUDA_VISIBLE_DEVICES"
POLL = 0.05
PATIENCE = 60
"""Seconds for processes to end after SIGTERM."""

REMEDY = "another rlvr sweep is running there: wait for its end, or stop it"


@dataclass(slots=True)
class _Started:
    """A process of this machine that executes a run."""

    run: Run
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    slot: int
    lock: int

    def close(self) -> None:
        """Kill the process if it is still there, and release the run's folder."""
        self.process.kill()
        self.process.wait()
        self.log.close()
        os.close(self.lock)


def carry_out(runs: Sequence[Run], parallel: int, say: Callable[[str], None]) -> None:
    """Start runs in processes of this machine until there are no more, and wait for them.

    Args:
        runs: The runs, in order.
        parallel: Maximum number of processes at once; they share this machine's GPUs.
        say: Called with progress messages.

    Raises:
        KeyboardInterrupt: After every started run has ended.
    """
    cards = shares(given_gpus() if parallel > 1 else [], parallel)
    waiting, running = deque(runs), list[_Started]()
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                slot = min(set(range(parallel)) - {started.slot for started in running})
                started = _start(waiting.popleft(), slot, cards[slot], say)
                running += [started] if started is not None else []
            for finished in list(running):
                code = finished.process.poll()
                if code is None:
                    continue
                running.remove(finished)
                note_fault(finished.run, code)
                finished.close()
                say(f"{finished.run.label}: {'finished' if code == 0 else 'failed'}")
            time.sleep(POLL)
    finally:
        _stop(running)


def child_command(folder: Path) -> list[str]:
    """Return the command that starts the run in a trial's folder, or resumes it.

    The process ends when its parent does.
    """
    folders = list_runs(folder)
    if folders:
        words = ["--resume", str(folders[0].path.resolve())]
    else:
        file = str(folder / CONFIG_FILE)
        words = [file, "--set", option("run.dir", escape(str(folder)))]
    module = [sys.executable, "-m", "rlvr_cluster.sweeps.child", str(os.getpid())]
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
    return [number.strip() for number in shown.split(",")][: torch.cuda.device_count()]


def _start(run: Run, slot: int, cards: str | None, say: Callable[[str], None]) -> _Started | None:
    """Start a run; return None if another process is running it or has finished it."""
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
    log = run.log.open("ab")
    process = subprocess.Popen(
        child_command(run.folder),
        env=os.environ | ({} if cards is None else {VISIBLE: cards}),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C only reaches it through this process
    )
    say(f"{run.label}: {'goes on' if begun else 'started'}")
    return _Started(run, process, log, slot, lock)


def _stop(running: Sequence[_Started]) -> None:
    """End runs; kill them on a further interrupt or if they take too long."""
    for started in running:
        started.process.terminate()
    until = time.monotonic() + PATIENCE
    with contextlib.suppress(KeyboardInterrupt):
        while time.monotonic() < until and any(
            started.process.poll() is None for started in running
        ):
            time.sleep(POLL)
    for started in running:
        started.close()
