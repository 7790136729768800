"""One call of an environment, in the worker process that makes it.

Answers are JSON, in which the state of a conversation is a pickle that the trainer keeps and never
opens.
"""

from __future__ import annotations

import base64
import pickle
from dataclasses import dataclass
from typing import Any, Literal

from rlvr_core.api import Ended, Json, Reply
from rlvr_core.api.services import plain_verdict, said


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


def answer(environment: Any, pickled: bytes) -> dict[str, Json]:
    """Make a pickled ``Call``."""
    call: Call = pickle.loads(pickled)
    state = pickle.loads(call.state)
    if call.what == "start":
        return {"state": _packed(environment.start(state, call.argument))}
    if call.what == "close":
        environment.close(state)
        return {}
    if call.what == "cut":
        return {"verdict": plain_verdict(environment.cut(state, call.argument))}
    found = environment.step(state, call.argument)
    return {"state": _packed(state), **said(found)}


def _packed(state: Any) -> str:
    return base64.b85encode(pickle.dumps(state, pickle.HIGHEST_PROTOCOL)).decode("ascii")
