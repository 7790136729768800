"""When an answer equals the expected one. Runs in the parent, on plain data only."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

_MANY_DIGITS = 10**300
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""Decimal numbers as programs print them; ``float`` reads more: underscores, other scripts."""


def as_text(value: Any) -> str:
    """An input or output as text; a list of lines is joined, and null is no text."""
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return "" if value is None else str(value)


def nothing_expected(tests: Mapping[str, Any], *, calls: bool) -> bool:
    """Whether a program without effect has all outputs right.

    Args:
        tests: With ``outputs``, perhaps ``wrapped``.
        calls: Whether outputs are values that a function returns, or texts that are written.
    """
    outputs = tests["outputs"]
    if calls:
        empty = [None] if tests.get("wrapped") else None
        return all(output == empty for output in outputs)
    return not any(as_text(output).split() for output in outputs)


def same_output(expected: str, given: str, tolerance: float) -> bool:
    """Whether two texts have the same words; white space is free.

    Args:
        expected: The right output.
        given: The program's.
        tolerance: By how much decimal numbers may differ, relative to 1 or to themselves.
    """
    right, left = expected.split(), given.split()
    return len(right) == len(left) and all(
        word == other or _close_words(word, other, tolerance)
        for word, other in zip(right, left, strict=True)
    )


def _close_words(expected: str, given: str, tolerance: float) -> bool:
    if tolerance <= 0 or not {".", "e", "E"} & set(expected) or len(given) > 400:
        return False
    if not _NUMBER.fullmatch(expected) or not _NUMBER.fullmatch(given):
        return False
    right, left = float(expected), float(given)
    # beyond all floats, any two would be equal
    return math.isfinite(right) and math.isfinite(left) and _close(right, left, tolerance)


def same_value(expected: Any, given: Any, tolerance: float, *, any_order: bool) -> bool:
    """Whether a returned value is the expected one, which is JSON.

    ``True`` is not 1.

    Args:
        expected: The right value.
        given: The program's, as ``sandbox.answers`` reads it.
        tolerance: By how much a float may differ, relative to 1 or to itself; where a whole number
            is expected, relative to 1 only.
        any_order: Whether two lists may differ in order.
    """
    return _same(expected, given, tolerance, any_order)


def _same(expected: Any, given: Any, tolerance: float, any_order: bool) -> bool:
    if isinstance(expected, bool) or isinstance(given, bool):
        return expected is given
    if isinstance(expected, int | float) and isinstance(given, int | float):
        if isinstance(expected, int) and isinstance(given, int):
            return expected == given
        # a whole number is to be right to the last digit, however many it has
        relative = 0.0 if isinstance(expected, int) else tolerance
        return _close(expected, given, tolerance, relative)
    if isinstance(expected, dict) and isinstance(given, dict):
        return expected.keys() == given.keys() and all(
            _same(value, given[key], tolerance, any_order) for key, value in expected.items()
        )
    if not isinstance(expected, list) or not isinstance(given, list):
        return type(expected) is type(given) and bool(expected == given)
    if len(expected) != len(given):
        return False
    if any_order:
        expected, given = sorted(expected, key=_text), sorted(given, key=_text)
    pairs = zip(expected, given, strict=True)
    return all(_same(item, other, tolerance, any_order) for item, other in pairs)


def _text(value: Any) -> str:
    """Something to sort values by."""
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, int) and abs(value) >= _MANY_DIGITS:
        return hex(value)  # repr refuses
    return repr(value)


def _close(expected: float, given: float, tolerance: float, relative: float | None = None) -> bool:
    relative = tolerance if relative is None else relative
    try:
        return math.isclose(expected, given, rel_tol=relative, abs_tol=tolerance)
    except OverflowError:  # a whole number beyond all floats
        return expected == given
