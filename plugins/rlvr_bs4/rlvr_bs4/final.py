"""Reading the final answer out of a response.

It is one JSON object, ``{"status": "ok", "answer": ...}`` or ``{"status": "limit", "answer": null,
"limit": {"reason": ..., "evidence": ...}}``. Text may stand around it. What comes before
``</think>`` is not read, and of several objects the last one counts, whole or broken.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from rlvr_core.api import Json, spoken

MOST = 200_000
"""Characters that are read, from the end."""
DEEPEST = 40
"""Nesting beyond this is refused before it is parsed."""
_START = re.compile(r'\{\s*"(?:status|answer|limit)"\s*:')
_TOKEN = re.compile(r'"(?>[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
"""A string, closed or not, or a bracket; takes linear time on any text."""
_BROKEN = 20
"""After so many objects that are not closed no further one is looked for."""
_KEYS = {"status", "answer", "limit"}


@dataclass(frozen=True, slots=True)
class Final:
    """A well-formed final answer.

    Attributes:
        answer: The value given; None as well of an abstention.
        reason: Why there is no answer; empty where there is one.
        evidence: What on the page shows it.
        source: The object as it was written.
    """

    answer: Json
    reason: str
    evidence: str
    source: str

    @property
    def abstains(self) -> bool:
        """Whether it says that there is no answer."""
        return bool(self.reason)


def visible(response: str) -> str:
    """The response after its thoughts; tool calls are read from it as well."""
    return spoken(response)


def parse(response: str) -> Final | str:
    """The final answer of a response, or what is wrong with it in one line."""
    text = visible(response)[-MOST:]
    begin, last, broken = 0, "", 0
    while broken < _BROKEN and (opening := _START.search(text, begin)) is not None:
        end = _end(text, opening.start())
        broken += end is None
        last = text[opening.start() : end] if end else ""
        begin = end or opening.end()
    if last:
        return _read(last)
    return "the last JSON object is cut off" if begin else "there is no JSON object with status"


def _end(text: str, start: int) -> int | None:
    """Return the end of the object that begins here, by brackets and strings; None if unclosed."""
    level = 0
    for token in _TOKEN.finditer(text, start):
        if token[0] in "{[":
            level += 1
        elif token[0] in "}]":
            level -= 1
            if level == 0:
                return token.end()
    return None


def _read(source: str) -> Final | str:
    if _depth(source) > DEEPEST:
        return f"it is nested deeper than {DEEPEST} levels"
    try:
        value = json.loads(source, parse_constant=_refuse, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        return f"no JSON: {str(error)[:200]}"
    return _checked(value, source)


def _depth(source: str) -> int:
    level = most = 0
    for token in _TOKEN.finditer(source):
        level += (token[0] in "{[") - (token[0] in "}]")
        most = max(most, level)
    return most


def _checked(value: dict[str, Any], source: str) -> Final | str:
    unknown = [key for key in value if key not in _KEYS]
    if unknown:
        return f"unknown key {unknown[0][:40]!r}; there are status, answer and limit"
    status, limit = value.get("status"), value.get("limit")
    if status == "ok":
        if "answer" not in value:
            return "status ok needs an answer"
        if limit is not None:
            return "status ok has no limit"
        return Final(value["answer"], "", "", source)
    if status != "limit":
        return 'the status is neither "ok" nor "limit"'
    if value.get("answer") is not None:
        return "status limit has no answer"
    if not isinstance(limit, dict) or set(limit) != {"reason", "evidence"}:
        return "status limit needs a limit with reason and evidence"
    reason, evidence = limit["reason"], limit["evidence"]
    if not (isinstance(reason, str) and reason and isinstance(evidence, str)):
        return "reason and evidence must be text"
    return Final(None, reason, evidence, source)


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key is there twice in one object")
    return members
