"""Validates what an environment's ``step`` returned, and converts it to plain JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping

from rlvr_core.api import Done, Json, Message, Observation
from rlvr_core.api.services import plain_verdict

ROLES = ("tool", "user")
MAX_COUNTS = 100
"""Largest number of counters of an environment."""


def shortened(text: str, most: int) -> str:
    """Cut a text at ``most`` characters, with a mark that says how many are left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[... {len(text) - most:,} more characters are left out]"


def said(found: object, max_characters: int | None = None) -> dict[str, Json]:
    """Validate and convert the return value of ``step``; cut long messages.

    Raises:
        TypeError: If it is neither an ``Observation`` nor ``Done``, or a field has the wrong type.
        ValueError: If there is no message, or a role or number is wrong.
    """
    if isinstance(found, Done):
        verdict = None if found.verdict is None else plain_verdict(found.verdict)
        return {"done": verdict, "counts": _counts(found.counts)}
    if not isinstance(found, Observation):
        raise TypeError(f"returned {type(found).__name__}, neither Observation nor Done")
    if not found.messages:
        raise ValueError("an Observation has at least one message")
    for message in found.messages:
        if not isinstance(message, Message) or not isinstance(message.content, str):
            raise TypeError(f"messages are Message with text, not {type(message).__name__}")
        if message.role not in ROLES:
            raise ValueError(f"an environment speaks as {' or '.join(ROLES)}, not {message.role}")
        message.content.encode()  # raises for a lone surrogate
    most = sys.maxsize if max_characters is None else max_characters
    messages = [[message.role, shortened(message.content, most)] for message in found.messages]
    return {"messages": messages, "counts": _counts(found.counts)}


def _counts(counts: Mapping[str, float]) -> dict[str, float]:
    if len(counts) > MAX_COUNTS:
        raise ValueError(f"{len(counts)} counts; {MAX_COUNTS} are the most")
    checked: dict[str, float] = {}
    for name, count in counts.items():
        number = float(count)
        if not math.isfinite(number):
            raise ValueError(f"count {name} is {number}")
        checked[str(name)] = number
    return checked
