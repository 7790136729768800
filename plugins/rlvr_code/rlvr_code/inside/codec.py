"""Values as text, between a trusted and an untrusted process.

Only plain data crosses, by its exact type: of an object of a subclass (``__eq__`` and all) the
data of the built-in type it derives from, of an iterator its items. Decoding runs no code of the
sender and makes nothing but plain data.
"""

from __future__ import annotations

import builtins
import contextlib
import datetime
import itertools
import json
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

LONGEST = 16 << 20
"""Maximum bytes of one value as text."""
_MOST_ITEMS = 100_000
"""Items of an iterator that are taken; one with more does not cross."""
_SMALL = 1 << 63
_DEPTH = 20_000
_TYPES = {kind: name for name, kind in vars(builtins).items() if type(kind) is type}
_KINDS = "biufcUS"
"""Kinds of numpy's types that cross."""


class UnfitError(ValueError):
    """A value, or a text for one, that cannot cross."""


Keep = Callable[[object], "dict[str, Any]"]
"""A tagged object that stands for what is no plain data.

Raises:
    UnfitError: If nothing does.
"""
Find = Callable[[str, Any], object]
"""The meaning of a tag that ``decode`` does not know, given with its value."""


def refuse(value: object) -> dict[str, Any]:
    """A ``Keep`` for which nothing but plain data crosses."""
    raise UnfitError(f"a {type(value).__name__} is no plain data")


def dumps(value: object, keep: Keep = refuse) -> bytes:
    """A value as text.

    Raises:
        UnfitError: If it is no plain data, nested too deeply or too large.
    """
    try:
        with _deep():
            text = json.dumps(encode(value, keep), separators=(",", ":")).encode()
    except (RecursionError, MemoryError) as error:
        raise UnfitError("it is nested too deeply, or in itself") from error
    if len(text) > LONGEST:
        raise UnfitError(f"it is too large: {len(text):,} bytes as text")
    return text


def loads(text: bytes, find: Find) -> Any:
    """The value of a text.

    Raises:
        UnfitError: If it is not one that ``dumps`` writes.
    """
    try:
        with _deep():
            return decode(json.loads(text), find)
    except UnfitError:
        raise
    except (RecursionError, MemoryError, ValueError, TypeError, ArithmeticError) as error:
        raise UnfitError(f"no value: {type(error).__name__}: {error}"[:300]) from error
    except (AttributeError, LookupError) as error:
        raise UnfitError(f"no value: {type(error).__name__}") from error


@contextlib.contextmanager
def _deep() -> Iterator[None]:
    """Let values be nested more deeply than calls may be."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEPTH))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def encode(value: Any, keep: Keep) -> Any:
    """A value as JSON.

    Raises:
        UnfitError: If it cannot cross.
    """
    exact = type(value)
    if value is None or exact in (bool, str):
        return value
    if exact is int:
        return value if -_SMALL < value < _SMALL else {"t": "int", "v": hex(value)}
    if exact is float:
        return value if value - value == 0 else {"t": "float", "v": repr(value)}
    if exact is type and value in _TYPES:
        return {"t": "type", "v": _TYPES[value]}
    if exact in _VIEWS:
        return {"t": exact.__name__, "v": _many(value, keep)}
    if type.__getattribute__(exact, "__module__") == "numpy":
        array = _array(value)
        if array is not None:
            return {"t": "ndarray", "v": encode(array, keep)}
    for base in type.__getattribute__(exact, "__mro__"):
        if base in _WRITERS:
            name, write = _WRITERS[base]
            return {"t": name, "v": write(value, keep)} if name else write(value, keep)
    if exact in _ITERATORS:
        items = list(itertools.islice(value, _MOST_ITEMS + 1))
        if len(items) > _MOST_ITEMS:
            raise UnfitError(f"an iterator has more than {_MOST_ITEMS:,} items")
        return {"t": "iterator", "v": _many(items, keep)}
    return keep(value)


_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_ITERABLE: tuple[Any, ...] = ([], (), {}, {}.values(), {}.items(), set(), "", b"", range(1))
_ITERATORS: frozenset[type] = frozenset(
    {
        type(_ for _ in ()),
        *(map, filter, zip, enumerate, reversed, type(reversed([])), type(reversed({}))),
        *(type(iter(iterable)) for iterable in _ITERABLE),
        *(kind for kind in vars(itertools).values() if isinstance(kind, type)),
    }
)


def _many(values: Any, keep: Keep) -> list[Any]:
    return [encode(item, keep) for item in values]


def _pairs(kind: type) -> Callable[[Any, Keep], list[Any]]:
    def write(value: Any, keep: Keep) -> list[Any]:
        items = kind.items(value)  # type: ignore[attr-defined]
        return [[encode(k, keep), encode(v, keep)] for k, v in items]

    return write


def _array(value: Any) -> list[Any] | None:
    """Type, shape and items of an array or number of numpy; None if it is neither."""
    numpy = sys.modules["numpy"]
    if not (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
        return None
    if value.dtype.kind not in _KINDS:
        return None
    scalar = isinstance(value, numpy.generic)
    return [value.dtype.str, None if scalar else list(value.shape), value.ravel().tolist()]


# by the built-in type a value is of, or derives from
_WRITERS: dict[type, tuple[str, Callable[[Any, Keep], Any]]] = {
    bool: ("", lambda value, keep: bool.__bool__(value)),
    int: ("", lambda value, keep: encode(int.__add__(value, 0), keep)),
    float: ("", lambda value, keep: encode(float.__add__(value, 0.0), keep)),
    str: ("", lambda value, keep: str.__getitem__(value, slice(None)) + ""),
    list: ("", lambda value, keep: _many(list.__iter__(value), keep)),
    tuple: ("tuple", lambda value, keep: _many(tuple.__iter__(value), keep)),
    set: ("set", lambda value, keep: _many(set.__iter__(value), keep)),
    frozenset: ("frozenset", lambda value, keep: _many(frozenset.__iter__(value), keep)),
    Counter: ("Counter", _pairs(dict)),
    OrderedDict: ("OrderedDict", _pairs(OrderedDict)),
    dict: ("dict", _pairs(dict)),
    deque: (
        "deque",
        lambda value, keep: [value.maxlen, _many(deque.__iter__(value), keep)],
    ),
    bytes: ("bytes", lambda value, keep: bytes.hex(value)),
    bytearray: ("bytearray", lambda value, keep: bytearray.hex(value)),
    complex: ("complex", lambda value, keep: _many((value.real, value.imag), keep)),
    range: ("range", lambda value, keep: _many((value.start, value.stop, value.step), keep)),
    Fraction: ("Fraction", lambda v, keep: _many((v._numerator, v._denominator), keep)),
    Decimal: ("Decimal", lambda value, keep: Decimal.__str__(value)),
    datetime.datetime: ("datetime", lambda value, keep: datetime.datetime.isoformat(value)),
    datetime.date: ("date", lambda value, keep: datetime.date.isoformat(value)),
    datetime.time: ("time", lambda value, keep: datetime.time.isoformat(value)),
    datetime.timedelta: ("timedelta", lambda v, keep: [v.days, v.seconds, v.microseconds]),
}


def decode(value: Any, find: Find) -> Any:
    """The value that some JSON stands for; what it raises on other JSON, ``loads`` catches."""
    if isinstance(value, list):
        return [decode(item, find) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) != {"t", "v"}:
        raise UnfitError("an object without tag")
    name, inner = value["t"], value["v"]
    if name in _SEQUENCES:
        return _SEQUENCES[name](decode(_list(inner), find))
    if name in _DICTIONARIES:
        dictionary = _DICTIONARIES[name]()
        for key, item in _list(inner):
            dictionary[decode(key, find)] = decode(item, find)
        return dictionary
    if name in _TEXTS:
        return _TEXTS[name](_text(inner))
    return find(name, inner)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UnfitError("a list is wanted")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise UnfitError("text is wanted")
    return value


def _read_type(name: str) -> Any:
    kind = vars(builtins).get(name)
    if kind not in _TYPES:
        raise UnfitError("no class of Python's own")
    return kind


def _read_array(given: list[Any]) -> Any:
    kind, shape, values = given
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or numpy.dtype(kind).kind not in _KINDS:
        raise UnfitError("no such array")
    array = numpy.array(values, dtype=kind)
    return array[0] if shape is None else array.reshape(shape)


_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "iterator": iter,
    "dict_keys": lambda given: dict.fromkeys(given).keys(),
    "dict_values": lambda given: dict(enumerate(given)).values(),
    "dict_items": lambda given: dict(given).items(),
    "deque": lambda given: deque(given[1], given[0]),
    "complex": lambda given: complex(*map(float, given)),
    "range": lambda given: range(*given),
    "Fraction": lambda given: Fraction(*given),
    "timedelta": lambda given: datetime.timedelta(*given),
    "ndarray": _read_array,
}
_DICTIONARIES = {"dict": dict, "Counter": Counter, "OrderedDict": OrderedDict}
_TEXTS: dict[str, Callable[[str], Any]] = {
    "int": lambda text: int(text, 16),
    "float": float,
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "Decimal": Decimal,
    "datetime": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "type": _read_type,
}
