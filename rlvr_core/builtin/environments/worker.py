"""One process that environments run in: it makes the calls that the pool sends, one by one.

Requests come pickled; answers go back as JSON, in which the state of a conversation is a pickle
that the trainer keeps and never opens.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import resource
import select
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal

from rlvr_core.api import Ended, Environment, Json, Reply
from rlvr_core.api.services import VerifierSpec, describe_error, die_with, plain_verdict, said

GO, SKIP = b"g", b"s"
"""Tickets, one for each call sent: make it, or go past it, as the pool has given it to another
process. As long as one lies in the pipe the pool may take it back."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message: how to construct each environment, by full name."""

    specs: Mapping[str, VerifierSpec]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an environment.

    Attributes:
        what: The method.
        name: Full name of the environment.
        state: Pickled; of ``start`` the problem.
        argument: The seed of ``start``, the reply of ``step``, why a conversation was ``cut``.
    """

    what: Literal["start", "step", "cut", "close"]
    name: str
    state: bytes
    argument: int | Reply | Ended | None = None


def main(descriptor: int, tickets: int, parent: int) -> None:
    """Serve until the pool closes the connection. Runs in the worker process."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for inherited in (descriptor, tickets):
        os.set_inheritable(inherited, False)
    with Connection(descriptor) as connection:
        try:
            setup: Setup = pickle.loads(connection.recv_bytes())
            environments: dict[str, Environment] = {}
            faults: dict[str, str] = {}
            for name, spec in setup.specs.items():
                try:
                    environments[name] = spec.build()
                except BaseException as error:
                    faults[name] = f"the environment cannot be constructed: {describe_error(error)}"
            _send(connection, "ready")
            while True:
                for call in pickle.loads(connection.recv_bytes()):
                    if _ticket(tickets) != GO:
                        continue
                    began = time.monotonic()
                    answer = faults.get(call.name) or _answer(environments[call.name], call)
                    _send(connection, time.monotonic() - began, answer)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the pool is gone


def _send(connection: Connection, *message: Json) -> None:
    line = json.dumps(message).encode() + b"\n"
    while line:
        line = line[os.write(connection.fileno(), line) :]


def _ticket(tickets: int) -> bytes:
    """The next ticket, as soon as there is one."""
    while True:
        try:
            return os.read(tickets, 1)
        except BlockingIOError:  # the pool has taken it back, and will say what to skip
            select.select([tickets], [], [])


def _answer(environment: Any, call: Call) -> Json:
    """The answer as JSON; a text is what went wrong."""
    try:
        if call.what == "start":
            problem = pickle.loads(call.state)
            return {"state": _packed(environment.start(problem, call.argument))}
        state = pickle.loads(call.state)
        if call.what == "close":
            environment.close(state)
            return {}
        if call.what == "cut":
            return {"verdict": plain_verdict(environment.cut(state, call.argument))}
        found = environment.step(state, call.argument)
        return {"state": _packed(state), **said(found)}
    except BaseException as error:
        return f"{call.what}: {describe_error(error)}"


def _packed(state: Any) -> str:
    return base64.b85encode(pickle.dumps(state, pickle.HIGHEST_PROTOCOL)).decode("ascii")
