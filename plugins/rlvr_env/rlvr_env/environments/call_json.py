"""Parses a tool call written as JSON, and repairs small mistakes on request."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from rlvr_core.api import BadCall, ToolCall
from rlvr_core.api.tools import unwritable


def read_call(text: str, key: str, repair: bool, *, cut: bool = False) -> ToolCall | BadCall:
    """Parse a text as a tool call.

    Args:
        text: The JSON text.
        key: Key of the arguments.
        repair: See ``ToolFormat.parse``.
        cut: Whether the text may be cut off, because nothing marks its end.
    """
    mended: list[str] = []
    try:
        call = _decoded(text.strip(), repair, mended, cut)
        _refuse_unwritable(call)
    except (ValueError, RecursionError) as error:
        return BadCall(f"the call is not valid JSON ({_reason(error)}); it was not run")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return BadCall(f'a call is an object with "name" and "{key}"; it was not run')
    if call.get("type") == "function":  # as OpenAI's interface has it, and some models write it
        del call["type"]
    other = sorted(call.keys() - {"name", key})
    arguments = call.get(key)
    if repair and key not in call:
        theirs = [name for name in ("arguments", "parameters") if name in call]
        if len(theirs) == 1:
            arguments, other = call[theirs[0]], sorted(call.keys() - {"name", theirs[0]})
            mended.append(f"'{theirs[0]}' for '{key}'")
    if repair and isinstance(arguments, str):
        try:
            arguments = _decoded(arguments, False, mended, cut)
            _refuse_unwritable(arguments)
        except (ValueError, RecursionError) as error:
            return BadCall(f'"{key}" is not valid JSON ({_reason(error)}); it was not run')
        mended.append("arguments written as a text")
    if not isinstance(arguments, dict):
        return BadCall(f'"{key}" of the call must be an object; it was not run')
    if other:
        return BadCall(f"a call has no '{other[0]}'; it was not run")
    return ToolCall(call["name"], arguments, tuple(mended))


def _decoded(text: str, repair: bool, mended: list[str], cut: bool) -> Any:
    """Decode JSON, repairing it on request as long as nothing must be guessed.

    Raises:
        ValueError: If it is not JSON.
        RecursionError: If it is nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        if not repair:
            raise
        first = error
    fence = re.fullmatch(r"```(?:json)?\s*(.*?)\s*```", text, re.DOTALL)
    attempts = [("a code fence", fence[1])] if fence else []
    text = fence[1] if fence else text
    closed = None if cut else _closed(text)
    if closed is not None:
        attempts.append(("brackets not closed", closed))
    attempts.append(("a trailing comma", re.sub(r",(\s*[}\]])(?=[\s}\]]*$)", r"\1", text)))
    for what, other in attempts:
        try:
            value = json.loads(other, object_pairs_hook=_once, parse_constant=_refuse)
        except ValueError:
            continue
        mended.append(what)
        return value
    try:
        value = json.loads(text, strict=False, object_pairs_hook=_once, parse_constant=_refuse)
    except ValueError:
        value = _literal(text, first)
        mended.append("Python in place of JSON")
    else:
        mended.append("line breaks in a text")
    return value


def _literal(text: str, otherwise: ValueError) -> Any:
    """Parse a Python literal that could have been written as JSON.

    Raises:
        ValueError: If it is not such a literal.
    """
    try:
        tree = ast.parse(text, mode="eval")
        for node in ast.walk(tree):
            keys = [ast.dump(key) for key in getattr(node, "keys", ()) if key is not None]
            if len(set(keys)) < len(keys):
                raise ValueError("a key is there twice")
        value = ast.literal_eval(tree)
        return json.loads(json.dumps(value, allow_nan=False))
    except (ValueError, SyntaxError, TypeError, MemoryError) as error:
        raise otherwise from error


def _closed(text: str) -> str | None:
    """Close the brackets that are open at the end of a text; None if none are.

    A text is not closed if content may be missing: inside a string, or after an opening bracket,
    comma or colon.
    """
    waiting: list[str] = []
    inside = escaped = False
    for sign in text:
        if inside:
            inside = escaped or sign != '"'
            escaped = sign == "\\" and not escaped
        elif sign == '"':
            inside = True
        elif sign in "{[":
            waiting.append("}" if sign == "{" else "]")
        elif sign in "}]" and (not waiting or waiting.pop() != sign):
            return None
    if inside or not waiting or text.rstrip()[-1] in "{[,:":
        return None
    return text + "".join(reversed(waiting))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("a key is there twice")
    return entries


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _refuse_unwritable(value: Any) -> None:
    broken = unwritable(value)
    if broken:
        raise ValueError(f"it holds {broken}")


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos + 1}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse)
