"""The remote end of a machine that trains: a Ray actor that starts its processes.

Ray has given it the machine's bundle, GPUs included (``CUDA_VISIBLE_DEVICES``); what it starts has
no other. The processes end with it.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rlvr_core import __version__
from rlvr_core.api import MachineError

_OF_RAY = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_OVERRIDE_NODE_ID_FOR_TESTING")
"""Variables of an actor's process that would make a process below it a part of Ray."""
_LAST_OUTPUT = 5.0
"""Seconds for the output of a command that has ended to arrive."""

_LONGEST_READ = 10.0
"""Seconds after which a call of ``read`` is answered: its caller may be gone."""

Output = tuple[int, str]
"""File descriptor, 1 or 2, and a line."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where an actor is.

    Attributes:
        host: Name of the machine.
        address: Address of its node, as the other nodes reach it.
        port: A port that was free.
        gpus: The ``CUDA_VISIBLE_DEVICES`` that Ray has set; None if it has set none.
        version: The node's version of rlvr-core.
    """

    host: str
    address: str
    port: int
    gpus: str | None
    version: str


class TrainerActor:
    """The training processes of one machine."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False
        self._news: list[Output | int] = []
        self._first = 0
        self._lock = threading.Condition()

    def where(self) -> Where:
        """Say where this is."""
        import ray

        with socket.socket() as free:
            free.bind(("", 0))
            port: int = free.getsockname()[1]
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
        address = ray.util.get_node_ip_address()
        return Where(platform.node(), address, port, gpus, __version__)

    def start(self, command: Sequence[str], directory: str, environment: Mapping[str, str]) -> None:
        """Start a command of the module ``attempt``; ``read`` returns what comes of it.

        Args:
            command: ``python -m MODULE`` and its arguments.
            directory: Where to run it, within the job's files.
            environment: More variables.
        """
        given = (list(command), Path(directory).absolute(), dict(environment))
        # the command ends with the thread that starts it
        threading.Thread(target=self._run, args=given, daemon=True).start()

    def read(self, seen: int) -> list[Output | int]:
        """Return what the command has printed, and at its end its exit code.

        It is negative where a signal ended the command. A call that is repeated since its answer
        was lost returns the same again.

        Args:
            seen: How many items the caller has had; the answer is empty if none came for a while.
        """
        with self._lock:
            del self._news[: max(0, seen - self._first)]
            self._first = max(self._first, seen)
            self._lock.wait_for(lambda: self._news, _LONGEST_READ)
            return list(self._news)

    def stop(self) -> None:
        """Send SIGTERM; a second one ends it at once, as with ``rlvr launch``."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)

    def _run(self, command: list[str], place: Path, environment: Mapping[str, str]) -> None:
        from rlvr_core.api.services import apart, unsent

        try:
            # a run that is fetched gets a folder that no other machine or attempt has
            fetched = Path(tempfile.mkdtemp(prefix="runs-", dir=place))
            # it ends with this process; Ray would kill it alone, and not what it has started
            begin = [*command[:3], "--parent", str(os.getpid()), "--root", fetched.name]
            kept = {name: value for name, value in apart().items() if name not in _OF_RAY}
            code = self._carry_out([*begin, *command[3:]], place, kept | dict(environment))
            if not unsent(fetched):
                shutil.rmtree(fetched, ignore_errors=True)
        except Exception as error:
            self._tell((2, f"error: the command cannot be started: {error}\n"))
            code = MachineError.exit_code
        self._tell(code)

    def _carry_out(self, command: Sequence[str], place: Path, environment: dict[str, str]) -> int:
        with self._lock:
            if self._stopped:
                return -signal.SIGTERM
            process = self._process = subprocess.Popen(
                command,
                cwd=place,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        pumps = [
            threading.Thread(target=self._pump, args=one, daemon=True)
            for one in ((1, process.stdout), (2, process.stderr))
        ]
        for pump in pumps:
            pump.start()
        code = process.wait()
        for pump in pumps:  # something below it that lives on may hold the pipe
            pump.join(_LAST_OUTPUT)
        return code

    def _pump(self, number: int, stream: IO[str] | None) -> None:
        assert stream is not None
        for line in stream:
            self._tell((number, line))

    def _tell(self, news: Output | int) -> None:
        with self._lock:
            self._news.append(news)
            self._lock.notify_all()
