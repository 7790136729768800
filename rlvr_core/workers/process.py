"""Child processes that can be killed, and the pool's side of one that judges.

``Child`` is any process that runs a module of ours: verifiers and environments have their own.
"""

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
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

from rlvr_core.workers.worker import REPORT_EVERY, Progress, Setup, Task

_BOOT = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "importlib.import_module(sys.argv[2]).main(*map(int, sys.argv[3:]))"
)
_READ = 2**20

START_LIMIT = 120.0
"""Seconds a worker has to start, to construct each verifier, and to take in a batch."""

AHEAD_BYTES = 2**16
"""Most that is sent to a worker before it is done with the last batch: it always fits in the
socket's buffer, so that sending never waits for a worker that hangs."""

Item = TypeVar("Item")


class Child:
    """A process that leads a process group of its own and imports nothing of our main module.

    It gets pickles and gives lines.

    Args:
        module: Whose ``main`` it calls with its end of the socket, ``descriptors`` and our
            process id.
        descriptors: Open files that it has too.
        setup: What it is sent first.

    Attributes:
        process: The process.
        connection: To it.
        hung_up: Whether its end of the connection is closed.
    """

    def __init__(self, module: str, descriptors: Sequence[int], setup: object) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            passed = [theirs.fileno(), *descriptors]
            words = [json.dumps(sys.path), module, *map(str, [*passed, os.getpid()])]
            self.process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *words],
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ
                # The same verdicts in every worker and run, and no thread pools beside the trainer.
                | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        self.connection = Connection(ours.detach())
        self.hung_up = False
        self._unread = b""
        self.write(setup)  # if it died at once, whoever reads from it finds the end of file

    def write(self, message: object) -> bool:
        """Send it something. False if it is gone."""
        try:
            self.connection.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
        except OSError:
            return False
        return True

    def read(self) -> list[bytes]:
        """Every whole line that has come; call it when there is something to read.

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

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

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


class Worker(Child, Generic[Item]):
    """One worker process.

    Attributes:
        progress: How far it is, told without a message.
        batch: What it has been sent and has not answered, in order.
        deadline: ``time.monotonic()`` after which it is killed; None when it owes nothing.
        unopened: Batches it has been sent and has not begun.
        ready: Whether its verifiers are constructed.
        constructing: The verifier it constructs, until it is ready.
        judged: Calls it has reported.
    """

    def __init__(self, setup: Setup) -> None:
        self.progress, file = Progress.create()
        with file:
            super().__init__("rlvr_core.workers.worker", [file.fileno()], setup)
        self.batch: deque[Item] = deque()
        self.deadline: float | None = time.monotonic() + START_LIMIT
        self.unopened = 0
        self.ready = False
        self.constructing: str | None = None
        self.judged = 0

    def send(self, tasks: list[Task], items: list[Item]) -> bool:
        """Give it work. False if it is gone."""
        if not self.write(tasks):
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
