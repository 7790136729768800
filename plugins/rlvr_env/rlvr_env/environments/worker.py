"""Calls an environment once in a worker process.

Answers are JSON; a conversation's state in them is a pickle that the trainer stores but never
loads.
"""

from __future__ import annotations

import base64
import pickle
from dataclasses import dataclass
from typing import Any, Literal

from rlvr_core.api import Ended, EnvironmentTraits, Json, Reply, traits_of
from rlvr_core.verify.verdicts import plain_verdict
from rlvr_env.environments.observations import plain_answer


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an environment.

    Attributes:
        what: Name of the method.
        name: Full name of the environment.
        state: The pickled state; for ``start``, the pickled problem.
        argument: The seed for ``start``, the reply for ``step``, the reason for ``cut``.
    """

    what: Literal["start", "step", "cut", "close"]
    name: str
    state: bytes
    argument: int | Reply | Ended | None = None


def answer(environment: Any, pickled: bytes) -> dict[str, Json]:
    """Execute a pickled ``Call`` and return the answer."""
    call: Call = pickle.loads(pickled)
    state = pickle.loads(call.state)
    if call.what == "start":
        return {"state": _packed(environment.start(state, call.argument))}
    if call.what == "close":
        environment.close(state)
        return {}
    if call.what == "cut":
        return {"verdict": plain_verdict(environment.cut(state, call.argument))}
    observed = environment.step(state, call.argument)
    max_characters = traits_of(environment, EnvironmentTraits).max_characters
    return {"state": _packed(state), **plain_answer(observed, max_characters)}


def _packed(state: Any) -> str:
    return base64.b85encode(pickle.dumps(state, pickle.HIGHEST_PROTOCOL)).decode("ascii")
