"""The pool's side of one worker process: starting it, talking to it, ending it."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

from rlvr_core.verify.worker import REPORT_EVERY, Progress, Setup, Task

START_LIMIT = 120.0
"""Seconds a worker has to start, to construct each verifier, and to take in a batch."""

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from rlvr_core.verify.worker import main; main(*map(int, sys.argv[2:]))"
)

_READ = 2**20

AHEAD_BYTES = 2**16
"""Most that is sent to a worker before it is done with the last batch: it always fits in the
socket's buffer, so that sending never waits for a worker that hangs."""

Item = TypeVar("Item")


@dataclass(eq=False, slots=True)
class Worker(Generic[Item]):
    """One worker process.

    Attributes:
        process: The process; leads a process group of its own.
        connection: To it.
        progress: How far it is, told without a message.
        batch: What it has been sent and has not answered, in order.
        deadline: ``time.monotonic()`` after which it is killed; None when it owes nothing.
        unopened: Batches it has been sent and has not begun.
        ready: Whether its verifiers are constructed.
        constructing: The verifier it constructs, until it is ready.
        judged: Calls it has reported.
        hung_up: Whether its end of the connection is closed.
    """

    process: subprocess.Popen[bytes]
    connection: Connection
    progress: Progress
    batch: deque[Item] = field(default_factory=deque)
    deadline: float | None = None
    unopened: int = 0
    ready: bool = False
    constructing: str | None = None
    judged: int = 0
    hung_up: bool = False
    _unread: bytes = b""

    @classmethod
    def start(cls, setup: Setup) -> Worker[Item]:
        """Start a process; it imports nothing of the caller's main module."""
        ours, theirs = socket.socketpair()
        progress, file = Progress.create()
        with theirs, file:
            descriptors = [theirs.fileno(), file.fileno()]
            command = [json.dumps(sys.path), *map(str, [*descriptors, os.getpid()])]
            process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *command],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ
                # The same verdicts in every worker and run, and no thread pools beside the trainer.
                | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        worker: Worker[Item] = cls(process, Connection(ours.detach()), progress)
        worker.deadline = time.monotonic() + START_LIMIT
        with contextlib.suppress(OSError):  # died at once: the pool hears the end of file
            worker.connection.send_bytes(pickle.dumps(setup))
        return worker

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    def send(self, tasks: list[Task], items: list[Item]) -> bool:
        """Give it work. False if it is gone."""
        try:
            self.connection.send_bytes(pickle.dumps(tasks, pickle.HIGHEST_PROTOCOL))
        except OSError:
            return False
        if not self.batch:
            self.deadline = time.monotonic() + START_LIMIT
        self.batch.extend(items)
        self.unopened += 1
        return True

    def begin(self, now: float, limit: float) -> None:
        """It has begun a call, or one of the next that it reports with it, at ``now``."""
        self.deadline = now + limit + REPORT_EVERY

    def take_current(self) -> tuple[Item, list[Item]]:
        """What it is at, out of its batch, and the rest: some of that finished but not reported."""
        rest = list(self.batch)
        self.batch.clear()
        current = rest.pop(min(max(self.progress.read() - self.judged, 0), len(rest) - 1))
        return current, rest

    def receive(self) -> list[bytes]:
        """Every whole message that has come; call it when there is something to read.

        One read takes in many: ``Connection.recv_bytes`` would read each one in two.
        """
        try:
            news = os.read(self.connection.fileno(), _READ)
        except OSError:
            news = b""
        self.hung_up = not news
        lines = (self._unread + news).split(b"\n")
        self._unread = lines.pop()
        return lines

    def is_dead(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def cause_of_death(self) -> str:
        """How it ended, in words."""
        try:
            code = self.process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        if code >= 0:
            return f"exit code {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"

    def kill(self) -> None:
        """End it and the processes of its group. Does not fail if it is gone."""
        self.connection.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5.0)
