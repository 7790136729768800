"""Traits of environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlvr_core.api import Traits


@dataclass(frozen=True, slots=True)
class EnvironmentTraits(Traits):
    """Traits of an environment.

    Attributes:
        on_error: What a ``step`` that raises, hangs or dies means. ``end``: the conversation ends
            as failed and is not trained on. ``observe``: the model reads the error in the place of
            a tool's answer and goes on; the state is as before the call.
        role: Who tells the model of such an error.
        error_text: What the model reads of it, with ``{error}`` in the place of what went wrong.
        max_characters: Longer messages of the environment are cut, with a mark that says how much
            is left out.
        asynchronous: Whether ``start``, ``step``, ``cut`` and ``close`` are coroutines. They run
            in an event loop of the run's own process, hundreds at a time, and a state is kept as it
            is: it may hold a connection, and with ``observe`` it is what the failed call left.
        deterministic: Whether problem, seed and replies decide everything that it says, and a call
            has no effect on anything but the state. The guard ``completions`` then plays a few
            conversations of each step again, in the trainer's process, and compares.
    """

    on_error: Literal["end", "observe"] = "end"
    role: Literal["tool", "user"] = "tool"
    error_text: str = "error: {error}"
    max_characters: int = 50_000
    asynchronous: bool = False
    deterministic: bool = False
