"""Values as text, between processes of which one is not trusted.

Only plain data crosses, by its exact type: of an object of a subclass (``__eq__`` and all) the
data of the built-in type it derives from. Whatever else there is stays where it is, and the other
side gets a handle. Decoding runs no code of the sender and makes nothing but plain data.
"""

from __future__ import annotations

import array
import builtins
import contextlib
import ctypes
import datetime
import gc
import json
import pathlib
import sys
import types
import uuid
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

from rlvr_code.inside import tables, things
from rlvr_code.inside.border import is_remote

IMMUTABLE = (int, float, str, tuple, bytes, frozenset, complex)
"""Immutable data, which crosses together with a handle if its class is the program's."""
LONGEST = 16 << 20
"""Most bytes of one value as text."""
_SMALL = 1 << 63
_VIEWS: tuple[type, ...] = (
    type({}.keys()),
    type({}.values()),
    type({}.items()),
    types.MappingProxyType,
)
_TYPES = {kind: name for name, kind in vars(builtins).items() if type(kind) is type}


class UnfitError(ValueError):
    """A value, or a text for one, that cannot cross."""


Keep = Callable[[object], "dict[str, Any] | None"]
"""Puts away what is no plain data; a tagged object that stands for it.

Of one whose class derives from a built-in one it may give None: then the data of that crosses."""
Find = Callable[[str, Any], object]
"""The meaning of a tag that ``decode`` does not know, given with its value."""


class Share(Protocol):
    """Puts what both processes have under numbers."""

    def write(self, value: Any, pen: Pen) -> Any:
        """What stands for an object; None if there is nothing to be shared of it."""


class Pen(NamedTuple):
    """How values that are no plain data are written.

    Attributes:
        keep: Puts them away.
        share: Of objects that can change, what both sides have; None if they cross as they are.
    """

    keep: Keep
    share: Share | None = None


class Raw(NamedTuple):
    """JSON that stands for itself."""

    json: Any


class Fields(dict[str, Any]):
    """The parts of a message, which is no value that could change."""


def dumps(value: object, keep: Keep, share: Share | None = None) -> bytes:
    """A value as text.

    Raises:
        UnfitError: If it is nested too deeply or too large.
    """
    try:
        with _deep():
            text = json.dumps(encode(value, Pen(keep, share)), separators=(",", ":")).encode()
    except (RecursionError, MemoryError) as error:
        raise UnfitError("it is nested too deeply, or in itself") from error
    if len(text) > LONGEST:
        raise UnfitError(f"it is too large: {len(text):,} bytes as text")
    return text


def data(value: object, pen: Pen) -> Any:
    """What ``dumps`` writes of the built-in part of an object, whatever the pen would say of it.

    Raises:
        UnfitError: If it has none.
    """
    for base in type(value).__mro__:
        if base in _WRITERS:
            name, write = _WRITERS[base]
            return {"t": name, "v": write(value, pen)} if name else write(value, pen)
    raise UnfitError(f"a {type(value).__name__}")


def loads(text: bytes, find: Find) -> Any:
    """The value of a text.

    Raises:
        UnfitError: If it is not one that ``dumps`` writes.
    """
    try:
        with _deep():
            return decode(json.loads(text), find)
    except (RecursionError, MemoryError, ValueError, TypeError, ArithmeticError) as error:
        raise UnfitError(f"no value: {type(error).__name__}: {error}"[:300]) from error
    except (AttributeError, LookupError, StopIteration) as error:
        raise UnfitError(f"no value: {type(error).__name__}") from error


@contextlib.contextmanager
def _deep() -> Iterator[None]:
    """Let values be nested more deeply than calls may be."""
    before = sys.getrecursionlimit()
    _limit(max(before, _DEPTH))
    try:
        yield
    finally:
        _limit(before)


_DEPTH = 20_000
_limit = sys.setrecursionlimit  # which test code finds replaced


def encode(value: Any, pen: Pen) -> Any:
    """A value as JSON.

    Raises:
        UnfitError: If it cannot cross.
    """
    exact = type(value)
    if exact is str:
        return sys.intern(value)  # what comes back is the same object
    if value is None or exact is bool:
        return value
    if exact is int:
        return value if -_SMALL < value < _SMALL else {"t": "int", "v": hex(value)}
    if exact is float:
        return value if value - value == 0 else {"t": "float", "v": repr(value)}
    if pen.share is not None and exact is not tuple:
        shared = pen.share.write(value, pen)
        if shared is not None:
            return shared
    if exact is list:
        return [encode(one, pen) for one in value]
    if exact is Raw:
        return value.json
    if exact in _VIEWS and pen.share is not None:
        of = gc.get_referents(value)[0]
        if type(of) in (dict, Counter) and "__module__" not in of:  # not that of a class
            return {"t": "view", "v": [exact.__name__, encode(of, pen)]}
    if exact is type and value in _TYPES:
        return {"t": "type", "v": _TYPES[value]}
    if type.__getattribute__(exact, "__module__") in (
        "numpy",
        "pandas",
        "pandas.core.frame",
        "pandas.core.series",
    ):
        table = tables.plain(value)
        if table is not None:
            return {"t": table[0], "v": encode(table[1], Pen(pen.keep))}
    named = None if exact in _WRITERS else things.written(value, lambda one: encode(one, pen))
    if named is not None:
        return named
    if exact not in _WRITERS and not issubclass(exact, pathlib.PurePath):
        found = None if exact is Fields else pen.keep(value)
        if found is not None:
            return found
    for base in type.__getattribute__(exact, "__mro__"):
        writer = _WRITERS.get(base)
        if writer is not None:
            name, write = writer
            return {"t": name, "v": write(value, pen)} if name else write(value, pen)
    raise UnfitError(f"a {exact.__name__}")


def _many(values: Any, pen: Pen) -> list[Any]:
    return [encode(one, pen) for one in values]


def _pairs(kind: type) -> Callable[[Any, Pen], list[Any]]:
    def write(value: Any, pen: Pen) -> list[Any]:
        items = kind.items(value)  # type: ignore[attr-defined]
        return [[encode(k, pen), encode(v, pen)] for k, v in items]

    return write


def _deque(value: Any, pen: Pen) -> list[Any]:
    return [value.maxlen, [encode(one, pen) for one in deque.__iter__(value)]]


def _window(value: Any, pen: Pen) -> Any:
    """A view of bytes: of those that both processes have if it may be written to, else a copy."""
    of = value.obj
    if pen.share is None or value.readonly or value.ndim != 1 or type(of) not in _VIEWED:
        return value.tobytes().hex()
    size, step = value.itemsize, value.strides[0]
    if memoryview(of).format != value.format or step <= 0 or not len(value):
        return value.tobytes().hex()
    start = (_address(value[:1]) - _address(of)) // size
    stop = start + (len(value) - 1) * (step // size) + 1
    return [encode(of, pen), start, stop, step // size]


_VIEWED = (bytearray, array.array)


def _address(of: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(of))


def _moment(value: Any, pen: Pen) -> Any:
    zone = value.tzinfo
    if zone is None or zone is datetime.UTC:
        whole = not value.fold
    else:  # one of the tests' own is known to the program by its offset alone
        whole = not (type(zone) in things.ZONES or is_remote(zone) or _of_program(zone))
    if whole:
        return datetime.datetime.isoformat(value)
    plain = datetime.datetime.isoformat(value.replace(tzinfo=None))
    return [plain, value.fold, encode(zone, pen)]


def _of_program(value: object) -> bool:
    return type(value).__module__ == "solution"


# by the built-in type a value is of, or derives from
_WRITERS: dict[type, tuple[str, Callable[[Any, Pen], Any]]] = {
    bool: ("", lambda value, pen: bool.__bool__(value)),
    int: ("", lambda value, pen: encode(int.__add__(value, 0), pen)),
    float: ("", lambda value, pen: encode(float.__add__(value, 0.0), pen)),
    str: ("", lambda value, pen: str.__getitem__(value, slice(None)) + ""),
    list: ("", lambda value, pen: _many(list.__iter__(value), pen)),
    tuple: ("tuple", lambda value, pen: _many(tuple.__iter__(value), pen)),
    set: ("set", lambda value, pen: _many(set.__iter__(value), pen)),
    frozenset: ("frozenset", lambda value, pen: _many(frozenset.__iter__(value), pen)),
    Counter: ("Counter", _pairs(dict)),
    OrderedDict: ("OrderedDict", _pairs(OrderedDict)),
    dict: ("dict", _pairs(dict)),
    deque: ("deque", _deque),
    bytes: ("bytes", lambda value, pen: bytes.hex(value)),
    bytearray: ("bytearray", lambda value, pen: bytearray.hex(value)),
    complex: (
        "complex",
        lambda value, pen: [encode(value.real, pen), encode(value.imag, pen)],
    ),
    range: ("range", lambda value, pen: _many((value.start, value.stop, value.step), pen)),
    slice: ("slice", lambda value, pen: _many((value.start, value.stop, value.step), pen)),
    memoryview: ("memoryview", _window),
    Fraction: ("Fraction", lambda v, pen: _many((v._numerator, v._denominator), pen)),
    Decimal: ("Decimal", lambda value, pen: Decimal.__str__(value)),
    datetime.datetime: ("datetime", _moment),
    datetime.date: ("date", lambda value, pen: datetime.date.isoformat(value)),
    datetime.time: ("time", lambda value, pen: datetime.time.isoformat(value)),
    datetime.timedelta: ("timedelta", lambda v, pen: [v.days, v.seconds, v.microseconds]),
    uuid.UUID: ("uuid", lambda value, pen: uuid.UUID.__str__(value)),
    pathlib.PurePath: (
        "path",
        lambda value, pen: [isinstance(value, pathlib.Path), pathlib.PurePath.__str__(value)],
    ),
    array.array: ("array", lambda v, pen: [v.typecode, _many(array.array.tolist(v), pen)]),
}


def decode(value: Any, find: Find) -> Any:
    """The value that some JSON stands for; what it raises on other JSON, ``loads`` catches."""
    if isinstance(value, list):
        return [decode(one, find) for one in value]
    if isinstance(value, str):
        return sys.intern(value)
    if not isinstance(value, dict):
        return value
    if set(value) != {"t", "v"}:
        raise UnfitError("an object without tag")
    name, inner = value["t"], value["v"]
    if name in tables.READERS:
        return tables.READERS[name](decode(inner, find))
    if name in things.READERS:
        return things.READERS[name](inner, lambda one: decode(one, find))
    if name not in _READERS:
        return find(name, inner)
    return _READERS[name](inner, find)


def _read_many(kind: type) -> Callable[[Any, Find], Any]:
    return lambda inner, find: kind(decode(_list(inner), find))


def _read_pairs(kind: type) -> Callable[[Any, Find], Any]:
    def read(inner: Any, find: Find) -> Any:
        found = kind()
        for key, value in _list(inner):
            found[decode(key, find)] = decode(value, find)
        return found

    return read


def _read_view(inner: Any, find: Find) -> Any:
    of = decode(inner[1], find)
    if not isinstance(of, dict):
        raise UnfitError("a view of no dictionary")
    views = {"dict_keys": of.keys, "dict_values": of.values, "dict_items": of.items}
    return types.MappingProxyType(of) if inner[0] == "mappingproxy" else views[inner[0]]()


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UnfitError("a list is wanted")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise UnfitError("text is wanted")
    return value


def _read_type(inner: Any, find: Find) -> Any:
    found = vars(builtins).get(_text(inner))
    if found not in _TYPES:
        raise UnfitError("no class of Python's own")
    return found


def _read_whole(inner: Any, find: Find) -> int:
    return int(_text(inner), 16)


def _read_window(inner: Any, find: Find) -> Any:
    if isinstance(inner, str):
        return memoryview(bytes.fromhex(inner))
    of, start, stop, step = inner
    return memoryview(decode(of, find))[start:stop:step]


def _read_moment(inner: Any, find: Find) -> Any:
    if isinstance(inner, str):
        return datetime.datetime.fromisoformat(inner)
    plain, fold, zone = inner
    when = datetime.datetime.fromisoformat(_text(plain))
    return when.replace(fold=fold, tzinfo=decode(zone, find))


def _read_array(inner: Any, find: Find) -> Any:
    return array.array(_text(inner[0]), decode(_list(inner[1]), find))


_READERS: dict[str, Callable[[Any, Find], Any]] = {
    "int": _read_whole,
    "float": lambda inner, find: float(_text(inner)),
    "tuple": _read_many(tuple),
    "set": _read_many(set),
    "frozenset": _read_many(frozenset),
    "Counter": _read_pairs(Counter),
    "OrderedDict": _read_pairs(OrderedDict),
    "dict": _read_pairs(dict),
    "deque": lambda inner, find: deque(decode(_list(inner[1]), find), inner[0]),
    "bytes": lambda inner, find: bytes.fromhex(_text(inner)),
    "bytearray": lambda inner, find: bytearray.fromhex(_text(inner)),
    "memoryview": _read_window,
    "complex": lambda inner, find: complex(*map(float, decode(_list(inner), find))),
    "range": lambda inner, find: range(*decode(_list(inner), find)),
    "slice": lambda inner, find: slice(*decode(_list(inner), find)),
    "Fraction": lambda inner, find: Fraction(*decode(_list(inner), find)),
    "Decimal": lambda inner, find: Decimal(_text(inner)),
    "datetime": _read_moment,
    "date": lambda inner, find: datetime.date.fromisoformat(_text(inner)),
    "time": lambda inner, find: datetime.time.fromisoformat(_text(inner)),
    "timedelta": lambda inner, find: datetime.timedelta(*_list(inner)),
    "uuid": lambda inner, find: uuid.UUID(_text(inner)),
    "path": lambda inner, find: (pathlib.Path if inner[0] else pathlib.PurePath)(_text(inner[1])),
    "array": _read_array,
    "type": _read_type,
    "view": _read_view,
}
