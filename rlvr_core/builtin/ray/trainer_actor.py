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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO

from rlvr_core import __version__

_OF_RAY = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_OVERRIDE_NODE_ID_FOR_TESTING")
"""Variables of an actor's process that would make a process below it a part of Ray."""
_LAST_OUTPUT = 5.0
"""Seconds for the output of a command that has ended to arrive."""

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
        self._lock = threading.Lock()

    def where(self) -> Where:
        """Say where this is."""
        import ray

        with socket.socket() as free:
            free.bind(("", 0))
            port: int = free.getsockname()[1]
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
        address = ray.util.get_node_ip_address()
        return Where(platform.node(), address, port, gpus, __version__)

    def run(
        self, command: Sequence[str], directory: str, environment: Mapping[str, str]
    ) -> Iterator[list[Output] | int]:
        """Run a command of the module ``attempt`` to its end.

        Args:
            command: ``python -m MODULE`` and its arguments.
            directory: Where to run it, within the job's files.
            environment: More variables.

        Yields:
            Lines of its output as they come; last its exit code, negative where a signal ended it.
        """
        from rlvr_core.api.services import apart, unsent

        place = Path(directory).absolute()
        # a run that is fetched gets a folder that no other machine or attempt has
        fetched = Path(tempfile.mkdtemp(prefix="runs-", dir=place))
        # it ends with this process; Ray would kill it alone, and not what it has started
        begin = [*command[:3], "--parent", str(os.getpid()), "--root", fetched.name]
        kept = {name: value for name, value in apart().items() if name not in _OF_RAY}
        with self._lock:
            if self._stopped:
                yield -signal.SIGTERM
                return
            process = self._process = subprocess.Popen(
                [*begin, *command[3:]],
                cwd=place,
                env=kept | dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        yield from _output(process)
        if not unsent(fetched):
            shutil.rmtree(fetched, ignore_errors=True)
        yield process.returncode

    def stop(self) -> None:
        """Send SIGTERM; a second one ends it at once, as with ``rlvr launch``."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)


def _output(process: subprocess.Popen[str]) -> Iterator[list[Output]]:
    """Yield what a process prints until it has ended."""
    assert process.stdout is not None
    assert process.stderr is not None
    lines: SimpleQueue[Output | None] = SimpleQueue()

    def pump(number: int, stream: IO[str]) -> None:
        for line in stream:
            lines.put((number, line))

    pumps = [
        threading.Thread(target=pump, args=one, daemon=True)
        for one in ((1, process.stdout), (2, process.stderr))
    ]

    def wait() -> None:
        process.wait()
        for one in pumps:  # something below it that lives on may hold the pipe
            one.join(_LAST_OUTPUT)
        lines.put(None)

    for one in (*pumps, threading.Thread(target=wait, daemon=True)):
        one.start()
    while (line := lines.get()) is not None:
        batch = [line]
        try:
            while (line := lines.get_nowait()) is not None:
                batch.append(line)
        except Empty:
            yield batch
        else:
            yield batch
            return
