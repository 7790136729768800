"""Classes, exceptions and data of the tests' process that stand for those of the program."""

from __future__ import annotations

import contextlib
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

from rlvr_code.inside import codec, errors
from rlvr_code.inside.remote import (
    READABLE,
    Asks,
    CannotCrossError,
    Data,
    Remote,
    Stands,
    crosses,
    is_remote,
    truth,
    whole,
)

DERIVED = (*codec.IMMUTABLE, list, dict, set, bytearray, deque)
"""Classes of data, of which others derive."""
_OWN = ("_link", "_number", "_remote")
"""Attributes of the classes that stand for others which are not the program's."""


class RemoteType(type, Stands):
    """Kind of the classes that stand for classes of the program."""

    _link: Asks
    _number: int

    def __call__(cls, /, *given: Any, **named: Any) -> Any:
        """Make an object, in the program's process."""
        if "_number" not in cls.__dict__:
            raise CannotCrossError(
                f"{cls.__name__}, a class of the tests, derives from a class of the program"
            )
        return cls._link.ask("make", cls, list(given), named)

    def __getattr__(cls, name: str) -> Any:
        if name in _OWN or (name.startswith("__") and name not in READABLE):
            raise AttributeError(name)
        return cls._link.ask("get", cls, [name])

    def __setattr__(cls, name: str, value: Any) -> None:
        cls._link.ask("set", cls, [name, value])

    def __delattr__(cls, name: str) -> None:
        cls._link.ask("delattr", cls, [name])

    def __getitem__(cls, key: Any) -> Any:
        return cls._link.ask("item", cls, [key])

    def __iter__(cls) -> Iterator[Any]:
        return cls._link.ask("iter", cls, [])  # type: ignore[no-any-return]

    def __len__(cls) -> int:
        return whole(cls._link.ask("len", cls, []), "length")

    def __bool__(cls) -> bool:
        return True

    def __contains__(cls, value: Any) -> bool:
        return truth(cls._link.ask("contains", cls, [value]))

    def __instancecheck__(cls, value: object) -> bool:
        if type.__instancecheck__(cls, value) and not is_remote(value):
            return True
        return truth(cls._link.ask("isinstance", value, [cls])) if crosses(value) else False

    def __eq__(cls, other: object) -> bool:
        return cls is other

    def __hash__(cls) -> int:
        return id(cls)


class RemoteErrorType(RemoteType):
    """The same of exceptions, which Python itself tells apart by inheritance."""

    def __instancecheck__(cls, value: object) -> bool:
        return type.__instancecheck__(cls, value)


class Error(Exception, Stands, metaclass=RemoteErrorType):
    """An exception of the program, of a class that the program defines."""

    _remote: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._remote is None or (name.startswith("__") and name not in READABLE):
            raise AttributeError(name)
        return getattr(self._remote, name)

    def __str__(self) -> str:
        return str(self._remote)

    def __repr__(self) -> str:
        return repr(self._remote)

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and self._remote == other._remote)

    def __hash__(self) -> int:
        return id(self)


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

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._remote.__class__ if self._remote is not None else type(self)

    def __repr__(self) -> str:
        return repr(self._remote)

    def __str__(self) -> str:
        return str(self._remote)


def rich(kind: Any, value: Any, remote: Remote) -> Any:
    """Data of a built-in kind that also stands for an object of the program."""
    made = _RICH.get(kind)
    if made is None:

        def to_text(self: Any) -> str:
            return str(kind.__str__(self))

        special = {"__str__": to_text} if kind is str else {}
        made = _RICH[kind] = type(kind.__name__, (Rich, kind), special)
    found = kind.__new__(made, value)
    found.__dict__["_remote"] = remote
    return found


_RICH: dict[type, type] = {}


def is_class(value: object) -> bool:
    """Whether something is a class."""
    return isinstance(value, type)


def stand_in(name: str, bases: list[Any], own: dict[str, Any]) -> type:
    """A class for a class of the program, with the exceptions that it derives from."""
    errors = [one for one in bases if issubclass(one, Exception)]
    errors = [one for one in errors if not issubclass(one, StopIteration | StopAsyncIteration)]
    others = [one for one in bases if type(one) is RemoteType or one in DERIVED]
    given = tuple(one for one in bases if one.__module__ == "tests" and one not in errors)
    if errors or any(issubclass(one, BaseException) for one in bases):
        first = [] if any(issubclass(one, Error) for one in errors) else [Error]
        with contextlib.suppress(TypeError):  # of bases that do not go together
            return RemoteErrorType(name, (*first, *errors), own)
        return RemoteErrorType(name, (Error,), own)
    if given:
        return _derived(name, given, own)
    with contextlib.suppress(TypeError):
        return RemoteType(name, tuple(others), own)
    return RemoteType(name, (), own)


def _derived(name: str, bases: tuple[type, ...], own: dict[str, Any]) -> type:
    """A class for one that derives from a class of the tests: one by inheritance alone."""
    kind = type(f"{type(bases[0]).__name__}Remote", (RemoteType, type(bases[0])), {})
    return type.__new__(kind, name, bases, own)


def library_class(module: str, name: str) -> type:
    """A class of Python's library that is imported here; the nearest that there is."""
    if module == "builtins" and name in _HIDDEN:
        return _HIDDEN[name]
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None
    root = module.partition(".")[0]
    if not isinstance(found, type) or root not in sys.stdlib_module_names:
        return Exception if name.endswith(("Error", "Exception")) else object
    if issubclass(found, BaseException):
        closed = root == "unittest" or not issubclass(found, _RAISED)
        return Exception if closed else found
    return found if root in _SAFE else object


_RAISED = (Exception, SystemExit, KeyboardInterrupt)
_SAFE = {"abc", "array", "builtins", "collections", "datetime", "decimal", "enum", "fractions"} | {
    *("functools", "itertools", "pathlib", "re", "types", "uuid")
}
_HIDDEN: dict[str, type] = {
    one.__name__: one
    for one in vars(types).values()
    if isinstance(one, type) and one.__module__ == "builtins" and one is not types.CoroutineType
}


def error_of(kind: Any, given: Any) -> BaseException:
    """An exception of a class of the tests' process.

    Raises:
        UnfitError: If it is none.
    """
    if not (is_class(kind) and issubclass(kind, BaseException)) or not isinstance(given, list):
        raise codec.UnfitError("no exception")
    try:
        return kind(*given)  # type: ignore[no-any-return]
    except Exception:
        return errors.exception(kind.__name__, str(given[0]) if given else "")
