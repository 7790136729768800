"""Classes and exceptions of the tests' process that stand for those of the program."""

from __future__ import annotations

import contextlib
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any, cast

from rlvr_code.inside import codec, errors, subclasses, things
from rlvr_code.inside.border import (
    DECIDES,
    READABLE,
    Asks,
    Stands,
    crosses,
    is_remote,
    truth,
    whole,
)
from rlvr_code.inside.remote import Remote

DERIVED = (*codec.IMMUTABLE, list, dict, set, bytearray, deque)
"""Classes of data, of which others derive."""
_OWN = ("_link", "_number", "_remote")
"""Attributes of the classes that stand for others which are not the program's."""


_ASKED: dict[str, list[str]] = {name: [name] for name in READABLE} | {"__class__": []}
for _name in ("__name__", "__qualname__", "__init_subclass__", "__prepare__"):
    del _ASKED[_name]
"""What the program is asked of a class, which any class has, by what it is asked with."""


def _stands(kind: type) -> bool:
    """Whether a class stands for one of the program, and does not only derive from such a one."""
    return "_number" in type.__getattribute__(kind, "__dict__")


def _link_of(kind: type) -> Any:
    """The connection of a class to the program; None if it has none."""
    own = type.__dict__["__dict__"].__get__(kind) if is_remote(kind) else {}
    return own.get("_link")


def _says_class(given: tuple[Any, ...]) -> bool:
    """Whether something is called as a class statement calls a metaclass."""
    return len(given) == 3 and list(map(type, given)) == [str, tuple, dict]


class RemoteType(type, Stands):
    """Kind of the classes that stand for classes of the program."""

    _link: Asks
    _number: int

    def __new__(mcs, name: str, bases: tuple[Any, ...], body: Any, /, **named: Any) -> Any:
        """Make one; one that test code derives is made by the program, too."""
        if "_number" in body or body.get("__module__") == __name__:
            return super().__new__(mcs, name, bases, body)
        makers = (*bases, *([named["metaclass"]] if "metaclass" in named else []))
        link = next(one for one in map(_link_of, makers) if one is not None)
        own = {"_link": link, "__module__": "solution"}
        own |= {key: body[key] for key in ("__classcell__", "__qualname__") if key in body}
        made = super().__new__(mcs, name, bases, own)
        link.derived(made, bases, subclasses.derive(link, name, bases, body, named))
        return made

    def __init__(cls, name: str, bases: tuple[Any, ...], body: Any, /, **named: Any) -> None:
        super().__init__(name, bases, body)

    def __call__(cls, /, *given: Any, **named: Any) -> Any:
        """Make an object, in the program's process; a class, if it is a class of classes."""
        if _says_class(given) and cls._link.ask("issubclass", cls, [type]):
            return RemoteType(*given, **named, metaclass=cls)
        return cls._link.ask("make", cls, list(given), named)

    def __getattribute__(cls, name: str) -> Any:
        if name in _ASKED and _stands(cls):
            return cls._link.ask("type" if name == "__class__" else "get", cls, _ASKED[name])
        return type.__getattribute__(cls, name)

    def __getattr__(cls, name: str) -> Any:
        if name in _OWN:
            raise AttributeError(name)
        if name.startswith("__") and name not in READABLE and name not in cls._link.mentioned:
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
        if name == DECIDES:
            raise AttributeError(name)
        return getattr(self._remote, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._remote is None or name.startswith("_") or name in ("args", DECIDES):
            super().__setattr__(name, value)
        else:
            setattr(self._remote, name, value)

    def __str__(self) -> str:
        return str(self._remote)

    def __repr__(self) -> str:
        return repr(self._remote)

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and self._remote == other._remote)

    def __hash__(self) -> int:
        return id(self)


def module_of(kind: type) -> str:
    """Where a class is defined, without asking the program."""
    return str(type.__getattribute__(kind, "__module__"))


def is_class(value: object) -> bool:
    """Whether something is a class."""
    return isinstance(value, type)


def stand_in(name: str, bases: list[Any], own: dict[str, Any]) -> type:
    """A class for a class of the program, with the exceptions that it derives from."""
    errors = [one for one in bases if issubclass(one, Exception)]
    errors = [one for one in errors if not issubclass(one, StopIteration | StopAsyncIteration)]
    others = [one for one in bases if type(one) is RemoteType or one in DERIVED]
    given = tuple(one for one in bases if module_of(one) == "tests" and one not in errors)
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
    if module == "builtins" and things.found(module, name) is types.CoroutineType:
        return object
    found, root = things.found(module, name), module.partition(".")[0]
    if not isinstance(found, type) or root not in sys.stdlib_module_names:
        return Exception if name.endswith(("Error", "Exception")) else object
    if issubclass(found, BaseException):
        closed = root == "unittest" or not issubclass(found, _RAISED)
        return Exception if closed else found
    return found if root in _SAFE else object


_RAISED = (Exception, SystemExit, KeyboardInterrupt)
_SAFE = {"abc", "array", "builtins", "collections", "datetime", "decimal", "enum", "fractions"} | {
    *("functools", "inspect", "itertools", "numbers", "pathlib", "queue", "re", "string"),
    *("types", "uuid"),
}


def error_of(kind: Any, given: Any, remote: Remote) -> BaseException:
    """An exception of a class of the tests' process.

    Raises:
        UnfitError: If it is none.
    """
    if not (is_class(kind) and issubclass(kind, BaseException)) or not isinstance(given, list):
        raise codec.UnfitError("no exception")
    if issubclass(kind, Error):
        group = issubclass(kind, BaseExceptionGroup)
        new: Any = BaseExceptionGroup.__new__ if group else errors.builtin_base(kind).__new__
        made: Any = new(kind, *given[:2]) if group else new(kind)
        made.__dict__["_remote"] = remote
        made.args = tuple(given)
        return cast("BaseException", made)
    if (
        module_of(kind) == "tests"
    ):  # which the program has too: it need not be made of what it keeps
        known: BaseException = errors.builtin_base(kind).__new__(kind)
        known.args = tuple(given)
        return known
    return errors.made(kind, given, str(given[0]) if given else "")
