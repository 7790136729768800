"""Reads a program's answers in the parent: JSON's types only, in linear time."""

from __future__ import annotations

import json
import math
import reprlib
from typing import Any

from rlvr_code.inside import codec

_DICTIONARIES = ("dict", "Counter", "OrderedDict")
_LARGE = "a whole number with very many digits"
_REPR = reprlib.Repr()
_REPR.maxother = _REPR.maxstring = 100


class Other:
    """Something that JSON does not have; it equals nothing."""

    def __repr__(self) -> str:
        return "something that JSON does not have"


def read(text: bytes) -> Any:
    """The value of a text that ``codec.dumps`` has written, or a forger.

    A tuple comes as a list, a key as text, everything that is not JSON as ``Other``: nothing of the
    program's is hashed but text, for other hashes can be made to collide.

    Raises:
        codec.UnfitError: If it is none.
    """
    try:
        return _plain(json.loads(text))
    except (RecursionError, MemoryError, ValueError, TypeError) as error:
        raise codec.UnfitError(f"no value: {type(error).__name__}: {error}"[:300]) from error


def shown(value: Any) -> str:
    """A value in a few words."""
    try:
        return _REPR.repr(value)[:200]
    except ValueError:
        return _LARGE


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) != {"t", "v"}:
        raise codec.UnfitError("an object without tag")
    tag, inner = value["t"], value["v"]
    if tag == "tuple" and isinstance(inner, list):
        return [_plain(item) for item in inner]
    if tag in _DICTIONARIES and isinstance(inner, list):
        return {_key(key): _plain(item) for key, item in inner}
    if tag == "int" and isinstance(inner, str):
        return int(inner, 16)
    if tag == "float" and isinstance(inner, str):
        return float(inner)
    if tag == "ndarray" and isinstance(inner, list) and len(inner) == 3:
        return _shaped(inner[1], _plain(inner[2]))
    return Other()


def _shaped(shape: Any, values: Any) -> Any:
    """The nested lists of an array; of none that is not what it says."""
    shape = [] if shape is None else shape  # of a number
    if not isinstance(shape, list) or not isinstance(values, list) or len(shape) > 8:
        return Other()
    if not all(type(size) is int and size > 0 for size in shape):
        return values if not values and shape else Other()
    if math.prod(shape) != len(values):
        return Other()
    for size in reversed(shape[1:]):
        values = [values[at : at + size] for at in range(0, len(values), size)]
    return values if shape else values[0]


def _key(encoded: Any) -> str:
    try:
        return str(_hashable(encoded))
    except ValueError as error:
        if isinstance(error, codec.UnfitError):
            raise
        return _LARGE


def _hashable(encoded: Any) -> Any:
    """Read a key. No list or dictionary: each within another's key would double its text."""
    tag = encoded.get("t") if isinstance(encoded, dict) else None
    if tag == "tuple" and isinstance(encoded.get("v"), list):
        return tuple(_hashable(item) for item in encoded["v"])
    if isinstance(encoded, list) or tag in _DICTIONARIES:
        raise codec.UnfitError("a key that can be none")
    return _plain(encoded)
