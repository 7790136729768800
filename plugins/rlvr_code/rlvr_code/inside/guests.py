"""What stands in the program's process for objects of the tests: their attributes, calls and so on.

The program reads the tests' data only so far as they hand it over. Nothing leads from an object to
the tests' names: no attribute that begins with an underscore, none of a frame, function, generator
or module.
"""

from __future__ import annotations

import copy
import functools
import operator
import types
from collections.abc import Callable
from typing import Any

from rlvr_code.inside import waiting
from rlvr_code.inside.kinds import _NAMES, SPECIAL
from rlvr_code.inside.operators import special
from rlvr_code.inside.remote_kinds import Getter

_CLOSED = (
    types.FrameType,
    types.TracebackType,
    types.CodeType,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    type,
)
_OF_GENERATORS = ("send", "throw", "close")


class Guest:
    """Stands for an object of the tests."""

    __slots__ = ("__weakref__", "_ask")

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return self._ask("vars")

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        kind: Any = type(self)
        return kind if kind.library is None else kind.library

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _NAMES:
            raise AttributeError(name)
        return self._ask("get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set", name, value)

    def __delattr__(self, name: str) -> None:
        self._ask("delattr", name)

    def __eq__(self, other: object) -> bool:
        return bool(self._ask("eq", other))

    def __hash__(self) -> int:
        return int(self._ask("hash"))

    def __bool__(self) -> bool:
        return bool(self._ask("true"))

    def __copy__(self) -> Any:
        return self._ask("copy")

    def __deepcopy__(self, memo: Any) -> Any:
        return self._ask("deepcopy")

    def __str__(self) -> str:
        return str(self._ask("str"))

    def __repr__(self) -> str:
        return str(self._ask("repr"))


def guest(call_back: Callable[..., Any], number: int, kind: Any) -> Any:
    """What stands for an object of the tests, of a class made for that."""
    made: Any = object.__new__(kind)
    object.__setattr__(made, "_ask", functools.partial(call_back, number))
    return waiting.coroutine(made) if kind.library is types.CoroutineType else made


def _asks(op: str) -> Callable[..., Any]:
    return lambda self, *given, **named: self._ask(op, *given, **named)


_OWN: dict[str, Callable[..., Any]] = {
    "await": lambda self: waiting.wait(self._ask),
    "anext": lambda self: waiting.coroutine(self._ask("anext")),
    "exit": lambda self, *error: bool(self._ask("exit", error[1])),
    "aenter": lambda self: waiting.coroutine(self._ask("aenter")),
    "aexit": lambda self, *error: waiting.coroutine(self._ask("aexit", error[1])),
}
METHODS = {name: _asks(name) for name in SPECIAL} | _OWN
"""Special methods of the tests' objects."""


def _about(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "get": getattr,
    "set": setattr,
    "delattr": delattr,
    "eq": operator.eq,
    "hash": hash,
    "true": bool,
    "contains": operator.contains,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "call": lambda one, *given, **named: one(*given, **named),
    "exit": lambda one, error: bool(special(one, "__exit__")(*_about(error))),
    "start": lambda one: waiting.start(one),
    "step": lambda one: waiting.step(one),
    "result": lambda one: waiting.result(one),
    "cancel": lambda one: waiting.cancel(one),
    "aenter": lambda one: special(one, "__aenter__")(),
    "aexit": lambda one, error: special(one, "__aexit__")(*_about(error)),
    "vars": lambda one: {k: v for k, v in vars(one).items() if not k.startswith("_")},
    "iter": iter,
    "next": next,
    "len": len,
    "str": str,
    "repr": repr,
    "format": format,
    "enter": lambda one: special(one, "__enter__")(),
    "aiter": lambda one: special(one, "__aiter__")(),
    "anext": lambda one: special(one, "__anext__")(),
    "reversed": reversed,
    "int": int,
    "float": float,
    "radd": lambda one, other: other + one,
    "rsub": lambda one, other: other - one,
    "rmul": lambda one, other: other * one,
}
_OPERATIONS |= {
    name: getattr(operator, f"__{name}__")
    for name in """
    getitem setitem delitem index abs neg lt le gt ge add sub mul truediv floordiv mod pow and or
    xor
    """.split()  # noqa: SIM905
}


def apply(one: Any, op: str, given: list[Any], named: dict[str, Any]) -> Any:
    """Do what the program asks of an object of the tests.

    Raises:
        AttributeError: If it asks for what would lead to the tests themselves.
    """
    if op in ("get", "set", "delattr"):
        name = given[0]
        if _described(one) and not str(name).startswith("__"):
            return _OPERATIONS[op](one, *given)
        if op == "get" and _of_class(one, name):
            return getattr(one, name)
        if type(name) is not str or name.startswith("_") or isinstance(one, _CLOSED):
            raise AttributeError(name)
        if isinstance(one, types.GeneratorType) and (op != "get" or name not in _OF_GENERATORS):
            raise AttributeError(name)
    if op == "call" and isinstance(one, type) and not _own_class(one):
        raise AttributeError(op)
    if op == "vars" and _described(one):
        return vars(one)
    if op == "vars" and isinstance(one, _CLOSED) and not _own_class(one):
        raise TypeError("no attributes")
    return _OPERATIONS[op](one, *given, **named)


def _own_class(one: Any) -> bool:
    return isinstance(one, type) and one.__module__ == "tests"


def _of_class(one: Any, name: Any) -> bool:
    """Whether a name is that of something which a class of the tests defines."""
    if type(name) is not str or not _own_class(one):
        return False
    defined = any(name in vars(base) for base in one.__mro__ if _own_class(base))
    return name in _NAMES or (defined and not name.startswith("_"))


def _described(one: Any) -> bool:
    """Whether something is of a class of the tests with a descriptor of the program.

    That keeps its values in the object, under any name.
    """
    kinds = [kind for kind in type(one).__mro__ if kind.__module__ == "tests"]
    return any(issubclass(type(value), Getter) for kind in kinds for value in vars(kind).values())
