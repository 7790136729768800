"""Classes, exceptions and data of the tests' process that stand for those of the program."""

from __future__ import annotations

import contextlib
import copy
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
    Data,
    Stands,
    crosses,
    is_remote,
    pickled,
    truth,
    whole,
)
from rlvr_code.inside.operators import OPERATORS
from rlvr_code.inside.remote import Remote, of_made

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
