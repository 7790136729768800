"""A child process that runs a module of ours and talks over a socket, seen from its parent."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection

_BOOT = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "importlib.import_module(sys.argv[2]).main(*map(int, sys.argv[3:]))"
)
_READ = 2**20


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
