"""A child process that can be killed, and definitions shared by the pool and its children.

Such children are the pool's workers (``workers/pool.py``) and engines that run beside training.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from subprocess import DEVNULL
from typing import Any

from rlvr_core.api import Json, LimitsTime, PluginError, config_class

_BOOT = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "importlib.import_module(sys.argv[2]).main(*map(int, sys.argv[3:]))"
)
_MESSAGE = 500
"""Characters of an error message that are kept."""

REPORT_EVERY = 0.002
"""Seconds of calls to collect in one report: with a message per call, fast calls would cost the
pool more than the worker."""
TICKETS = 256
"""A call's ticket is its sequence number modulo this, which exceeds the calls in transit."""


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """How a worker constructs a component.

    Attributes:
        target: ``module:Class``.
        config: Values of its ``Config``.
    """

    target: str
    config: Mapping[str, Json]

    def load(self) -> Any:
        """Import the component's class."""
        return resolve_name(self.target)

    def build(self) -> Any:
        """Construct the component."""
        cls = self.load()
        return cls(config_class(cls)(**self.config))

    def time_limit(self, usual: float) -> float:
        """Return the seconds a call may take: the component's ``time_limit``, or the usual limit.

        Raises:
            PluginError: If its ``time_limit`` is not a number of seconds.
        """
        cls = self.load()
        options = config_class(cls)
        if not isinstance(cls, LimitsTime):
            return usual
        limit: Any = cls.time_limit(options(**self.config))
        if not isinstance(limit, int | float) or not 0 < limit < math.inf:
            raise PluginError(
                f"time_limit of {self.target} gave {limit!r}, not a number of seconds above 0",
                where=str(sys.modules[cls.__module__].__file__),
            )
        return float(limit)


class Child:
    """A process with its own process group, which does not import our main module.

    Args:
        module: Module whose ``main`` is called with the child's end of the socket, ``descriptors``
            and our process id.
        descriptors: File descriptors to inherit.
        env: Environment variables of the child.
        output: Destination of its output: a descriptor, or ``subprocess.DEVNULL``.

    Attributes:
        process: The child process.
        socket: Our end of the socket.
    """

    def __init__(
        self, module: str, descriptors: Sequence[int], env: Mapping[str, str], output: int = DEVNULL
    ) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            passed = [theirs.fileno(), *descriptors]
            words = [json.dumps(sys.path), module, *map(str, [*passed, os.getpid()])]
            self.process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *words],
                pass_fds=passed,
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # the trainer handles Ctrl-C
                env=env,
            )

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self.process.pid

    def is_dead(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def cause_of_death(self, patience: float = 1.0) -> str:
        """Describe how it ended; waits up to ``patience`` seconds for the end."""
        try:
            code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        if code >= 0:
            return f"exit code {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"

    def kill(self) -> None:
        """Kill it and its process group; safe if it has already ended."""
        self.socket.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5.0)


def describe_error(error: BaseException) -> str:
    """Return type and message of an exception, on one line and truncated."""
    try:
        message = str(error)
    except BaseException:
        message = "(its message cannot be read)"
    return " ".join(f"{type(error).__name__}: {message[:_MESSAGE]}".split())[:_MESSAGE]
