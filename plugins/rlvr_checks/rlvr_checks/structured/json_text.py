"""Finds the JSON in an answer and reads it strictly."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from rlvr_core.api import spoken

MAX_CHARACTERS = 200_000
MAX_DEPTH = 100
_ATTEMPTS = 200
"""Maximum places in prose to try before reporting that there is no JSON."""

Place = Literal["any", "whole"]

_FENCE = re.compile(r"^[ \t]*```[ \t]*(\w*)[ \t]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.M | re.S)
_STRING = r'(?<![^\s\[{(:,=])"(?:[^"\\\n]|\\.)*+"'
_TAG = re.compile(  # tags in strings are text
    rf"{_STRING}|<answer>((?:{_STRING}|(?!</?answer>).)*+)</answer>", re.DOTALL | re.IGNORECASE
)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_START = re.compile(r"[\[{]")


class JsonError(ValueError):
    """The fault of a text that should be JSON, in one line."""


@dataclass(frozen=True, slots=True)
class Found:
    """A value, and the text it was read from."""

    value: Any
    text: str


def find_json(answer: str, place: Place, opening: Literal["{", "[", ""] = "") -> Found:
    """Return the JSON of an answer.

    Args:
        answer: The whole completion; reasoning is ignored.
        place: ``whole``: the answer must be JSON and nothing else. ``any``: the last ``<answer>``
            or fenced block if there is one, else the whole answer, else the last object or array
            in it.
        opening: First character of the value; of several values in prose, the last one with it is
            returned, so that a reference such as ``[1]`` does not count as the answer.

    Raises:
        JsonError: If there is none, or it is not JSON.
    """
    text = spoken(answer.replace("\r\n", "\n")).strip().removeprefix("\ufeff")
    if len(text) > MAX_CHARACTERS:
        raise JsonError(f"the answer is longer than {MAX_CHARACTERS:,} characters")
    if not text:
        raise JsonError("the answer is empty")
    if place == "whole":
        return Found(parse(text), text)
    tags = [tag[1] for tag in _TAG.finditer(text) if tag[1] is not None]
    inside = tags[-1].strip() if tags else text
    blocks = [m for m in _FENCE.finditer(inside) if m[1].lower() in ("", "json", "jsonc", "json5")]
    if blocks:
        block = blocks[-1][2].strip()
        return Found(parse(block), block)
    if tags or inside[0] in '{["' or not _START.search(inside):
        try:
            return Found(parse(inside), inside)
        except JsonError as fault:
            if tags or "behind" not in str(fault) or not _START.search(inside):
                raise
    return _last_in(inside, opening)


def _last_in(text: str, opening: str) -> Found:
    """Return the last object or array in prose, preferably one that begins with ``opening``.

    Raises:
        JsonError: If there is none; with the fault of the first object that fails to parse.
    """
    last: Found | None = None
    fault: JsonError | None = None
    at, tried = 0, 0
    while (start := _START.search(text, at)) is not None and tried < _ATTEMPTS:
        try:
            value, end = _decode(text, start.start())
        except json.JSONDecodeError as error:
            tried += 1
            at = start.start() + 1
            if start[0] == "{" and last is None and fault is None:
                fault = JsonError(_message(error))
        else:
            at = end
            if last is None or start[0] == opening or last.text[0] != opening:
                last = Found(value, text[start.start() : end])
    if last is None:
        raise fault or JsonError("there is no JSON in the answer")
    return last


def parse(text: str) -> Any:
    """Parse strictly standard JSON.

    Raises:
        JsonError: If it is not; says where.
    """
    try:
        value, end = _decode(text, 0)
    except json.JSONDecodeError as error:
        raise JsonError(_message(error)) from error
    if text[end:].strip():
        raise JsonError(f"there is text behind the JSON: {text[end:].strip()[:40]!r}")
    return value


def _decode(text: str, start: int) -> tuple[Any, int]:
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if depth > MAX_DEPTH:
            raise JsonError(f"it is nested deeper than {MAX_DEPTH} levels")
        if depth <= 0:
            break
    try:
        return _DECODER.raw_decode(text, start)
    except RecursionError as error:
        raise JsonError("it is nested too deeply") from error
    except json.JSONDecodeError:
        raise
    except JsonError:
        raise
    except ValueError as error:  # more digits than Python converts
        raise JsonError("it holds a number of too many digits") from error


def _message(error: json.JSONDecodeError) -> str:
    if error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated"):
        return f"not JSON: cut off at character {error.pos + 1} ({error.msg})"
    return f"not JSON: {error.msg} at character {error.pos + 1}"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise JsonError(f"the key {twice[:40]!r} is there twice in one object")
    for name in entries:
        _writable(name)
    for value in entries.values():
        _writable(value)
    return entries


def _writable(value: Any) -> None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise JsonError("it holds half of a surrogate pair, which is no text") from None


def _constant(name: str) -> Any:
    raise JsonError(f"{name} is not JSON")


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise JsonError(f"{digits[:20]} is too large a number")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_constant, parse_float=_float)
