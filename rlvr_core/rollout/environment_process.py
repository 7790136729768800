"""One process that environments run in, seen from the pool: starting, talking to and ending it."""

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from rlvr_core.rollout.environment_worker import GO, SKIP, Call, Setup
from rlvr_core.types import Json
from rlvr_core.verify.worker import VerifierSpec

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from rlvr_core.rollout.environment_worker import main; main(*map(int, sys.argv[2:]))"
)
_READ = 1 << 20


@dataclass(eq=False, slots=True)
class EnvironmentProcess:
    """A process, and the pipe of its tickets: whoever reads a ticket has the call.

    Attributes:
        process: It; leads a process group of its own.
        connection: To it.
        take: Where tickets are read, here and there.
        give: Where they are written.
        hung_up: Whether its end of the connection is closed.
    """

    process: subprocess.Popen[bytes]
    connection: Connection
    take: int
    give: int
    hung_up: bool = False
    _unread: bytes = b""

    @classmethod
    def start(cls, specs: Mapping[str, VerifierSpec]) -> EnvironmentProcess:
        """Start one; it imports nothing of the caller's main module."""
        ours, theirs = socket.socketpair()
        take, give = os.pipe()
        os.set_blocking(take, False)  # for both who read from it
        with theirs:
            numbers = [theirs.fileno(), take, os.getpid()]
            process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(sys.path), *map(str, numbers)],
                pass_fds=[theirs.fileno(), take],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ
                | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        made = cls(process, Connection(ours.detach()), take, give)
        with contextlib.suppress(OSError):  # died at once: the pool hears the end of file
            made.connection.send_bytes(pickle.dumps(Setup(specs)))
        return made

    def send(self, calls: Sequence[Call]) -> bool:
        """Give it work. False if it is gone."""
        os.write(self.give, GO * len(calls))
        try:
            self.connection.send_bytes(pickle.dumps(list(calls), pickle.HIGHEST_PROTOCOL))
        except OSError:
            return False
        return True

    def receive(self, deadline: float) -> list[Json]:
        """The next messages; none if the process ended or the deadline passed.

        Args:
            deadline: ``time.monotonic()`` after which to wait no more.
        """
        while not self.hung_up:
            if not self.connection.poll(max(deadline - time.monotonic(), 0.0)):
                return []
            try:
                news = os.read(self.connection.fileno(), _READ)
            except OSError:
                news = b""
            self.hung_up = not news
            *lines, self._unread = (self._unread + news).split(b"\n")
            if lines:
                return [json.loads(line) for line in lines]
        return []

    def take_back(self) -> int:
        """How many calls it has not begun, and will not."""
        try:
            found = os.read(self.take, 1 << 16)
        except BlockingIOError:
            return 0
        earlier = found.count(SKIP)  # it has yet to go past calls of an earlier batch
        self.skip(earlier)
        return len(found) - earlier

    def skip(self, calls: int) -> None:
        """Let it go past calls that were taken back."""
        if calls:
            os.write(self.give, SKIP * calls)

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
        """End it and the processes of its group. Does not fail if it is gone; once only."""
        self.connection.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5.0)
        os.close(self.take)
        os.close(self.give)
