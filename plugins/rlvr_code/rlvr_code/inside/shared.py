"""Lists, dictionaries and the like that have crossed: tests and program see each other's changes.

Each process has its own copy of such an object, under a number that both know. A message begins
with what its sender has changed of them since its last one, so that a list which a test holds, and
which a later call appends to, has grown when that call returns; and the same object is always the
same object. One that nobody can reach any more in one of the processes is forgotten by both.
"""

from __future__ import annotations

import array
import operator
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from rlvr_code.inside import codec, tables

NEW, SAME, SYNC = "new", "same", "sync"
"""Tags: an object that crosses for the first time, one known, and what has changed of all."""


class _Kind(NamedTuple):
    """How objects of one class are copied.

    Attributes:
        name: Of the class.
        parts: What an object is made of, to be compared later: a list, by identity, or bytes.
        write: An object's contents as JSON, by a function that encodes a value.
        make: An object of this class for such contents, not filled yet.
        fill: Gives an object contents that have been decoded.
    """

    name: str
    parts: Callable[[Any], list[Any] | bytes]
    write: Callable[[Any, Callable[[Any], Any]], Any]
    make: Callable[[Any], Any]
    fill: Callable[[Any, Any], None]


class _Entry:
    __slots__ = ("parts", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.parts: Any = None


class Shared:
    """The objects of one process that the other one knows too.

    Args:
        first: First number of those that begin here; the other side has the odd or the even ones.
    """

    def __init__(self, first: int) -> None:
        self._entries: dict[int, _Entry] = {}
        self._numbers: dict[int, int] = {}
        self._first = self._next = first
        self._gone: list[int] = []
        self._new: list[int] = []
        self._written: list[_Entry] = []

    def write(self, value: Any, pen: codec.Pen) -> Any:
        """What stands in a message for an object; None if objects of its kind are not shared."""
        known = self._numbers.get(id(value))
        if known is not None:
            return {"t": SAME, "v": known}
        kind = _kind(value)
        if kind is None:
            return None
        number, self._next = self._next, self._next + 2
        entry = self._enter(number, value)
        self._new.append(number)
        return {"t": NEW, "v": [number, kind.name, self._contents(entry, pen)]}

    def changes(self, pen: codec.Pen) -> codec.Raw:
        """What a message begins with: the contents of those changed, and those forgotten."""
        changed = []
        for number, entry in list(self._entries.items()):
            if not _same(_kind(entry.value).parts(entry.value), entry.parts):
                changed.append([number, self._contents(entry, pen)])
        for number in list(self._entries):
            if sys.getrefcount(self._entries[number].value) == _ALONE:
                self._forget(number)
                self._gone.append(number)
        return codec.Raw({"t": SYNC, "v": [changed, list(self._gone)]})

    def sent(self, well: bool) -> None:
        """Note that the message just written has been sent, or could not be."""
        if well:
            self._gone.clear()
        else:
            for entry in self._written:
                entry.parts = None
            for number in self._new:
                self._forget(number)
        self._new.clear()
        self._written.clear()

    def read(self, tag: str, inner: Any, find: codec.Find) -> Any:
        """What a tag of this module in a message of the other side means.

        Raises:
            UnfitError: If there is no such object.
            LookupError, TypeError, ValueError: If it is nothing of the kind.
        """
        if tag == SAME:
            return self._entries[inner].value
        if tag == NEW:
            number, name, contents = inner
            if type(number) is not int or number % 2 == self._first or number in self._entries:
                raise codec.UnfitError("no new object")
            kind = _BY_NAME[name]
            entry = self._enter(number, kind.make(contents))
            kind.fill(entry.value, codec.decode(contents, find))
            entry.parts = kind.parts(entry.value)
            return entry.value
        changed, gone = inner
        for number, contents in changed:
            decoded = codec.decode(contents, find)
            if number in self._entries:
                entry = self._entries[number]
                kind = _kind(entry.value)
                kind.fill(entry.value, decoded)
                entry.parts = kind.parts(entry.value)
        for number in gone:
            self._forget(number)
        return None

    def _enter(self, number: int, value: Any) -> _Entry:
        entry = self._entries[number] = _Entry(value)
        self._numbers[id(value)] = number
        return entry

    def _forget(self, number: int) -> None:
        entry = self._entries.pop(number, None)
        if entry is not None:
            del self._numbers[id(entry.value)]

    def _contents(self, entry: _Entry, pen: codec.Pen) -> Any:
        self._written.append(entry)
        kind = _kind(entry.value)
        entry.parts = kind.parts(entry.value)
        return kind.write(entry.value, lambda one: codec.encode(one, pen))


_LONE = _Entry([])
_ALONE = sys.getrefcount(_LONE.value)
"""References to an object that nothing but its entry holds."""


def _same(now: Any, before: Any) -> bool:
    if type(now) is bytes or type(before) is not list:
        return bool(now == before)
    return len(now) == len(before) and all(map(operator.is_, now, before))


def _write_many(value: Any, encode: Callable[[Any], Any]) -> list[Any]:
    return [encode(one) for one in value]


def _write_pairs(value: Any, encode: Callable[[Any], Any]) -> list[Any]:
    return [[encode(key), encode(one)] for key, one in value.items()]


def _fill_list(value: Any, contents: Any) -> None:
    value[:] = contents


def _fill_set(value: Any, contents: Any) -> None:
    value.clear()
    value.update(contents)


def _fill_pairs(value: Any, contents: Any) -> None:
    dict.clear(value)
    if type(value) is OrderedDict:
        value.clear()
    for key, one in contents:
        value[key] = one


def _fill_default(value: Any, contents: Any) -> None:
    value.default_factory = defaultdict(contents[0]).default_factory  # refuses what is none
    _fill_pairs(value, contents[1])


def _fill_deque(value: Any, contents: Any) -> None:
    value.clear()
    value.extend(contents[1])


def _fill_bytes(value: Any, contents: Any) -> None:
    value[:] = bytes.fromhex(contents)


def _fill_array(value: Any, contents: Any) -> None:
    value[:] = array.array(value.typecode, contents[1])


def _fill_table(value: Any, contents: Any) -> None:
    value[...] = tables.READERS["ndarray"](contents)


def _parts_of_pairs(value: Any) -> list[Any]:
    return [*value.keys(), *value.values()]


def _pairs(kind: type) -> _Kind:
    return _Kind(kind.__name__, _parts_of_pairs, _write_pairs, lambda _: kind(), _fill_pairs)


_KINDS: dict[type, _Kind] = {
    list: _Kind("list", list, _write_many, lambda _: [], _fill_list),
    set: _Kind("set", list, _write_many, lambda _: set(), _fill_set),
    dict: _pairs(dict),
    Counter: _pairs(Counter),
    OrderedDict: _pairs(OrderedDict),
    defaultdict: _Kind(
        "defaultdict",
        lambda value: [value.default_factory, *_parts_of_pairs(value)],
        lambda value, encode: [encode(value.default_factory), _write_pairs(value, encode)],
        lambda _: defaultdict(),
        _fill_default,
    ),
    deque: _Kind(
        "deque",
        list,
        lambda value, encode: [value.maxlen, _write_many(value, encode)],
        lambda contents: deque(maxlen=contents[0]),
        _fill_deque,
    ),
    bytearray: _Kind(
        "bytearray",
        bytes,
        lambda value, encode: value.hex(),
        lambda _: bytearray(),
        _fill_bytes,
    ),
    array.array: _Kind(
        "array",
        lambda value: value.tobytes(),
        lambda value, encode: [value.typecode, _write_many(value, encode)],
        lambda contents: array.array(contents[0]),
        _fill_array,
    ),
}
_KINDS[types.SimpleNamespace] = _Kind(
    "SimpleNamespace",
    lambda value: _parts_of_pairs(vars(value)),
    lambda value, encode: _write_pairs(vars(value), encode),
    lambda _: types.SimpleNamespace(),
    lambda value, contents: _fill_pairs(vars(value), contents),
)
_TABLE = _Kind(
    "ndarray",
    lambda value: value.tobytes(),
    lambda value, encode: [
        value.dtype.str,
        list(value.shape),
        _write_many(value.ravel().tolist(), encode),
    ],
    lambda contents: tables.empty(contents[0], contents[1]),
    _fill_table,
)
_BY_NAME = {kind.name: kind for kind in (*_KINDS.values(), _TABLE)}


def _kind(value: Any) -> Any:
    return _KINDS.get(type(value)) or (_TABLE if tables.is_array(value) else None)
