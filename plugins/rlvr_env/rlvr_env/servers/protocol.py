"""The frames between ``env/remote`` and ``rlvr env serve``: JSON objects over one WebSocket.

One connection is one conversation, and lives as long as it does. The client asks, one request at
a time; every request gets exactly one answer:

| request | answer |
|---|---|
| ``describe`` | ``about``: protocol, environment, what it offers |
| ``present`` with ``problem`` | ``presented`` with prompt, tools, stop; or ``refused`` |
| ``open`` with ``problem``, ``seed`` | ``opened`` |
| ``step`` with the fields of ``Reply`` | ``observation`` or ``done``, with counts |
| ``cut`` with ``ended`` | ``verdict`` |
| ``close`` | ``closed`` |
| ``resume`` | ``error`` with status ``lost``: a connection that broke is a lost conversation |

A request that fails is answered by ``error`` with a status of ``STATUSES`` and a detail.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Literal, TypeVar

from rlvr_core.api import Json, MachineError, Message, Problem

T = TypeVar("T")
PROTOCOL = 1
"""Version; both ends refuse another one."""
HEARTBEAT = 20.0
"""Seconds between two pings of each end, and seconds that the answer to one may take."""
MAX_FRAME = 64 * 2**20
"""Largest frame in bytes."""

Status = Literal["raised", "timeout", "protocol", "full", "lost"]
"""Why a request failed: the environment raised or took too long; the request was not understood;
the server has as many conversations as it takes; the conversation is not there."""


class FrameError(Exception):
    """A frame that is not of this protocol."""


def websockets_for(component: str) -> tuple[Any, Any, Any]:
    """Return the modules of websockets: its client in coroutines, that in threads, its errors.

    Raises:
        MachineError: If it is not installed.
    """
    try:
        import websockets.asyncio.client as client
        import websockets.exceptions as faults
        import websockets.sync.client as sync
    except ImportError as error:
        raise MachineError(
            f"{component} needs websockets, which does not import: {error}",
            remedy='pip install "rlvr-core[env-server]"',
        ) from error
    return client, sync, faults


def pack(kind: str, **fields: Json) -> str:
    """Return a frame."""
    return json.dumps({"type": kind, **fields}, ensure_ascii=False)


def unpack(frame: str | bytes) -> dict[str, Json]:
    """Parse a frame.

    Raises:
        FrameError: If it is no JSON object with a ``type``.
    """
    try:
        value = json.loads(frame)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame is no JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise FrameError("a frame is a JSON object with the field 'type'")
    return value


def field(frame: dict[str, Json], name: str, kind: type[T]) -> T:
    """Return a field of a frame.

    Raises:
        FrameError: If it is missing, or of another type.
    """
    value = frame.get(name)
    if not isinstance(value, kind):
        wanted = f"{frame['type']} needs the field '{name}', a {kind.__name__}"
        raise FrameError(wanted)
    return value


def problem_to_json(problem: Problem) -> dict[str, Json]:
    """Return a problem as JSON; ``where`` is left out."""
    plain = asdict(problem)
    del plain["where"]
    return plain


def problem_from_json(plain: Json) -> Problem:
    """Rebuild a problem.

    Raises:
        FrameError: If a field is missing or unknown.
    """
    try:
        prompt = plain["prompt"]
        if not isinstance(prompt, str):
            prompt = tuple(Message(**message) for message in prompt)
        tuples = {"stop": tuple(plain["stop"]), "tools": tuple(plain["tools"])}
        return Problem(**{**plain, **tuples, "prompt": prompt})
    except (TypeError, KeyError) as error:
        raise FrameError(f"the field 'problem' is no problem: {error}") from None
