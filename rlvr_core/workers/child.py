"""The main loop of a pool's worker process: constructs components, and makes the calls.

It imports nothing heavy itself. Calls arrive pickled from the pool; answers are sent back as JSON
lines, so that the trainer never unpickles anything a component returns.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import IO

from rlvr_core.api import Json
from rlvr_core.workers.process import REPORT_EVERY, TICKETS, describe_error

_Components = dict[str, Callable[..., Json]]
"""Functions that make a call of each component, by component name."""


def main(descriptor: int, tickets: int, parent: int) -> None:
    """Serve calls until the pool closes the connection. Runs in the worker process."""
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # who signals all processes of a job wants the run to end in order, and it needs its verdicts;
    # a function, as programs that are started from here would inherit that a signal is ignored
    signal.signal(signal.SIGTERM, lambda *_: None)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.set_inheritable(descriptor, False)
    os.set_inheritable(tickets, False)
    with open(descriptor, "rb") as stream:
        try:
            specs, handler, memory_mb, repeatable = pickle.load(stream)
            handle, faults = resolve_name(handler), {}
            components: _Components = {}
            for name, spec in specs.items():
                _send(descriptor, "constructing", json.dumps(name))
                try:
                    components[name] = partial(handle, spec.build())
                except BaseException as error:
                    faults[name] = describe_error(error)
            if memory_mb is not None:
                _limit_memory(memory_mb)
            _send(descriptor, "ready", json.dumps(faults))
            with socket.socket(fileno=tickets) as numbers:
                _serve(stream, numbers, components, repeatable)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the pool has exited


def end_with_parent(parent: int) -> None:
    """Make this process end when its parent does, even by SIGKILL; end it if that is gone."""
    if sys.platform == "linux":
        import ctypes

        set_parent_death_signal = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the line above
        os._exit(0)


def _limit_memory(memory_mb: int) -> None:
    if sys.platform != "linux":
        return  # elsewhere limits on address space are not reliable
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = mapped + memory_mb * 2**20
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _serve(
    stream: IO[bytes], tickets: socket.socket, components: _Components, repeatable: bool
) -> None:
    """Make the calls received, each only if this process gets its ticket."""
    descriptor, process = stream.fileno(), os.getpid()
    calls: deque[tuple[str, tuple[bytes, ...], float]] = deque()
    reports: list[str] = []
    number, reported, reported_limit = -1, 0.0, 0.0

    def report() -> None:
        if reports:
            _send(descriptor, "done", f"[{','.join(reports)}]")
            reports.clear()

    while True:
        try:
            ticket = tickets.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            report()
            ticket = tickets.recv(1)
        if not ticket:
            return
        while True:  # a call whose ticket is gone was given to another process
            if not calls:
                report()
                calls.extend(pickle.load(stream))
                reported = time.monotonic()
                _send(descriptor, "start", repr(reported))
            name, payload, limit = calls.popleft()
            number = (number + 1) % TICKETS
            if number == ticket[0]:
                break
        if limit != reported_limit:
            report()  # the pool applies one limit to calls reported together
        began = time.monotonic()
        answer, fault = "null", None
        try:
            answer = json.dumps(components[name](*payload))
        except MemoryError:
            fault = ("memory", "out of memory")
        except BaseException as error:
            fault = ("raised", describe_error(error))
        if os.getpid() != process:
            os._exit(0)  # a fork of this process that a component made and let return here
        now = time.monotonic()
        described = json.dumps(fault) if fault else "null"
        reports.append(f"[{now!r}, {now - began!r}, {answer}, {described}]")
        if fault or not repeatable or now - reported >= REPORT_EVERY:
            report()
            reported = now
        reported_limit = limit
        if fault and fault[0] == "memory":
            return  # the process may be corrupted


def _send(descriptor: int, kind: str, content: str) -> None:
    line = memoryview(f'["{kind}", {content}]\n'.encode())
    while line:
        line = line[os.write(descriptor, line) :]
