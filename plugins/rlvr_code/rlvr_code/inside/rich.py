"""Data of the tests' process that stands for objects of the program, too."""

from __future__ import annotations

import copy
from typing import Any

from rlvr_code.inside.border import READABLE, Data, Stands, is_remote, pickled, truth, whole
from rlvr_code.inside.operators import OPERATORS
from rlvr_code.inside.remote import Remote, of_made


class Rich(Data):
    """Plain data of a class that the program derives from a built-in one: compared as that data.

    What the data does not have, its attributes and methods, is the program's.
    """

    _remote: Any = None

    def __getattribute__(self, name: str) -> Any:
        """A field may have the name of a method of the data, as ``count`` of a named tuple has."""
        found = object.__getattribute__(self, name)
        if name.startswith("_") or object.__getattribute__(self, "_remote") is None:
            return found
        own = getattr(object.__getattribute__(self, "_remote"), name)
        return found if is_remote(own) or callable(own) else own

    def __getattr__(self, name: str) -> Any:
        if self._remote is None or (name.startswith("__") and name not in READABLE):
            raise AttributeError(name)
        return getattr(self._remote, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._remote, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._remote, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._remote.__class__ if self._remote is not None else type(self)

    def __repr__(self) -> str:
        return repr(self._remote)

    def __str__(self) -> str:
        return str(self._remote)

    def __format__(self, spec: str) -> str:
        return format(self._remote, spec)

    def __copy__(self) -> Any:
        return copy.copy(self._remote)

    def __deepcopy__(self, memo: Any) -> Any:
        return copy.deepcopy(self._remote)

    def __reduce_ex__(self, version: Any) -> Any:
        return pickled(self, self._remote._link)


def _operator(kind: Any, op: str) -> Any:
    """An operator: between objects of the program it is the program's, else that of the data."""
    of_data = getattr(kind, f"__{op}__", None)

    def method(self: Any, other: Any) -> Any:
        remote = object.__getattribute__(self, "_remote")
        if isinstance(other, Data | Stands) or remote._made:
            return of_made(remote, remote._link.ask(op, self, [other]))
        return NotImplemented if of_data is None else of_data(self, other)

    return method


def _bitwise(op: str) -> Any:
    """An operator of flags: the data is that of the tests, the class the program's."""

    def method(self: Any, other: Any) -> Any:
        data = OPERATORS[op](int.__index__(self), other)
        if not isinstance(other, Rich):
            return data
        found = self._remote._link.ask(op, self, [other])
        return found if isinstance(found, Rich) and found == data else data

    return method


def _contains(self: Any, other: Any) -> bool:
    return (
        truth(self._remote._link.ask("contains", self, [other]))
        if isinstance(other, Rich)
        else False
    )


def _inverted(self: Any) -> Any:
    return self._remote._link.ask("invert", self, [])


_FLAG: dict[str, Any] = {f"__{op}__": _bitwise(op) for op in ("or", "and", "xor")} | {
    "__contains__": _contains,
    "__invert__": _inverted,
    "__iter__": lambda self: self._remote._link.ask("iter", self, []),
    "__len__": lambda self: whole(self._remote._link.ask("len", self, []), "length"),
}
"""What members of flags can do, and other whole numbers cannot."""


def rich(kind: Any, value: Any, remote: Remote) -> Any:
    """Data of a built-in kind that also stands for an object of the program."""
    made = _RICH.get(kind)
    if made is None:

        def to_text(self: Any) -> str:
            return str(kind.__str__(self))

        special: dict[str, Any] = {"__str__": to_text} if kind is str else {}
        special |= {f"__{op}__": _operator(kind, op) for op in OPERATORS}
        special |= {f"__r{op}__": _operator(kind, f"r{op}") for op in OPERATORS}
        special |= _FLAG if kind is int else {}
        made = _RICH[kind] = type(kind.__name__, (Rich, kind), special)
    found = kind.__new__(made, value)
    found.__dict__["_remote"] = remote
    return found


_RICH: dict[type, type] = {}
