"""Classes of the tests in the program's process: with the same names, bases and special methods.

An object of the tests stands there as one of such a class. So ``type``, ``isinstance`` and
``functools.singledispatch`` tell the tests' objects apart as they would at home.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from rlvr_code.inside import callbacks, codec, things

KIND = "kind"
"""Tag of a class of the tests."""
GIVEN = "given"
"""Tag of a class that both have."""
SPECIAL = """
iter next len str repr format getitem setitem delitem contains call enter exit await aiter anext int
float index abs neg lt le gt ge add sub mul truediv floordiv mod pow radd rsub rmul and or xor
reversed aenter aexit
""".split()  # noqa: SIM905
"""Special methods that objects of the tests may have in the program's process."""
_NAMES = ("__name__", "__qualname__", "__doc__")
"""What may be asked of a class."""


def told(number: int, kind: type, pen: codec.Pen) -> dict[str, Any]:
    """What the program is told of a class of the tests: name, text, bases and special methods."""
    if things.of_library(kind):
        return {"t": "library", "v": [kind.__module__, kind.__qualname__, _special(kind)]}
    bases = [codec.encode(base, pen) for base in kind.__bases__ if base is not object]
    begins = None if kind in _told_now else _begins(number, kind, pen)
    about = [kind.__name__, kind.__doc__, bases, _special(kind), begins, _fields(kind, pen)]
    return {"t": KIND, "v": [number, *about]}


_told_now: list[type] = []
"""Classes that are being described; their hints may name them again."""


def _begins(number: int, kind: Any, pen: codec.Pen) -> Any:
    """What the program is told of ``__init__``: parameters and hints; None where it is Python's."""
    if not isinstance(kind.__init__, types.FunctionType):
        return None
    _told_now.append(kind)
    try:
        return callbacks.told(number, kind.__init__, pen)
    finally:
        _told_now.pop()


def _fields(kind: type, pen: codec.Pen) -> Any:
    """Names and types of a data class's fields; None if it is none."""
    fields: Any = vars(kind).get("__dataclass_fields__")
    if fields is None:
        return None
    return [[one.name, codec.encode(one.type, pen)] for one in fields.values()]


def told_given(kind: type) -> dict[str, Any]:
    """What it is told of a class that program and tests both define."""
    return {"t": GIVEN, "v": [kind.__name__, _special(kind)]}


def _special(kind: type) -> list[str]:
    return [name for name in SPECIAL if _has(kind, f"__{name}__")]


def _has(kind: type, name: str) -> bool:
    found = next((vars(one)[name] for one in kind.__mro__ if name in vars(one)), None)
    return found is not None and vars(object).get(name) is not found


_own = type.__dict__["__dict__"].__get__
"""A class's own attributes, whatever its ``__dict__`` is."""
_mro = type.__dict__["__mro__"].__get__
"""A class and its bases, whatever it says they are."""


class GuestType(type):
    """Kind of the classes that stand for classes of the tests."""

    _ask_class: Any
    library: Any = None

    @property
    def __signature__(cls) -> inspect.Signature:
        begins = next(
            (own["__init__"] for own in map(_own, _mro(cls)[:-1]) if "__init__" in own), None
        )
        if begins is None:
            return inspect.Signature()
        whole = inspect.signature(begins)
        return whole.replace(parameters=list(whole.parameters.values())[1:])

    def __call__(cls, /, *given: Any, **named: Any) -> Any:
        """Have the tests make an object."""
        return cls._asked("call", *given, **named)

    def _asked(cls, op: str, *given: Any, **named: Any) -> Any:
        if "_ask_class" not in _own(cls):
            raise AttributeError(
                f"cannot cross to the tests: {op} of {cls.__name__}, which derives from a class of "
                "the tests"
            )
        return cls._ask_class(op, *given, **named)

    @property
    def __mro__(cls) -> tuple[Any, ...]:
        own = tuple(one for one in _mro(cls) if isinstance(one, GuestType))
        known = cls.library
        return own + ((object,) if known is None else known.__mro__[1:])

    @property  # type: ignore[misc]
    def __dict__(cls) -> Any:  # type: ignore[override]
        own = _own(cls)
        if "_ask_class" not in own:
            return own
        return cls._asked("vars") | {name: own[name] for name in own if name.startswith("__")}

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_") and name not in _NAMES:
            raise AttributeError(name)
        return cls._asked("get", name)

    def __setattr__(cls, name: str, value: Any) -> None:
        if name not in ("_ask_class", "library", "__doc__") or "_ask_class" in _own(cls):
            raise AttributeError(
                f"cannot cross to the tests: {name} of {cls.__name__}, a class of the tests"
            )
        type.__setattr__(cls, name, staticmethod(value) if name == "_ask_class" else value)

    def __iter__(cls) -> Any:
        return cls._asked("iter")

    def __len__(cls) -> int:
        return int(cls._asked("len"))

    def __bool__(cls) -> bool:
        return True

    def __getitem__(cls, key: Any) -> Any:
        return cls._asked("getitem", key)

    def __contains__(cls, value: Any) -> bool:
        return bool(cls._asked("contains", value))


class Classes:
    """The tests' classes in the program's process.

    Args:
        call_back: Has the tests do something with an object of theirs, by its number.
        base: Class of all objects of the tests.
        methods: By name the special methods that such objects may have.
    """

    def __init__(
        self, call_back: Callable[..., Any], base: type, methods: dict[str, Callable[..., Any]]
    ) -> None:
        self._call_back, self._base, self._methods = call_back, base, methods
        self._made: dict[Any, Any] = {}

    def find(self, number: int, name: str, doc: Any, bases: list[Any], special: list[str]) -> Any:
        """The class that stands for one of the tests."""
        if number not in self._made:
            guests = tuple(one for one in bases if isinstance(one, GuestType))
            made = self._class(name, guests or (self._base,), special)
            made.__doc__ = doc
            ask = functools.partial(self._call_back, number)
            others = [one for one in bases if one not in guests and isinstance(one, type)]
            inherited = [one.library for one in guests if one.library is not None]
            made.library = _library(name, others) or (inherited[0] if inherited else None)
            made._ask_class = ask
            self._made[number] = made
        return self._made[number]

    def with_fields(self, made: Any, fields: list[tuple[str, Any]]) -> None:
        """Make a class that stands for a data class one for the library too."""
        like = dataclasses.make_dataclass("Fields", fields)
        for name in ("__dataclass_fields__", "__dataclass_params__"):
            type.__setattr__(made, name, getattr(like, name))

    def library(self, module: str, name: str, special: list[str]) -> Any:
        """The class of the tests' objects of a class of the library."""
        place = (module, name)
        if place not in self._made:
            made = self._class(name, (self._base,), special)
            made.library = things.found(module, name)
            self._made[place] = made
        return self._made[place]

    def given(self, kind: Any, special: list[str]) -> Any:
        """The class of the tests' objects of a class that program and tests both define."""
        if kind not in self._made:
            made = self._class(kind.__name__, (self._base,), special)
            made.library = kind
            self._made[kind] = made
        return self._made[kind]

    def number(self, kind: Any) -> int | None:
        """The number of a class of the tests; None if it is none."""
        return next((n for n, one in self._made.items() if one is kind and type(n) is int), None)

    def _class(self, name: str, bases: tuple[Any, ...], special: list[str]) -> Any:
        methods: dict[str, Any] = {
            f"__{one}__": self._methods[one] for one in special if one in self._methods
        }
        methods |= {"__slots__": (), "__module__": "tests"}
        return GuestType(name, bases, methods)


def _library(name: str, bases: list[Any]) -> Any:
    """What ``__class__`` is for objects of a class that derives from these; None for their own."""
    concrete = [one for one in bases if not isinstance(one, abc.ABCMeta)]
    for one in concrete:
        with contextlib.suppress(Exception):  # of a class that cannot be derived from like that
            return type(one)(name, (one,), {"__module__": "tests"})
        return one
    return None
