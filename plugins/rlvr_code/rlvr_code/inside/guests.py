"""What stands in the program's process for objects of the tests: their attributes, calls and so on.

The program reads the tests' data only so far as they hand it over. Nothing leads from an object to
the tests' names: no attribute that begins with an underscore, none of a frame, function, generator
or module.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import Any

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

    def __init__(self, call_back: Callable[..., Any], number: int) -> None:
        object.__setattr__(self, "_ask", functools.partial(call_back, number))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._ask("get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set", name, value)

    def __eq__(self, other: object) -> bool:
        return bool(self._ask("eq", other))

    def __hash__(self) -> int:
        return int(self._ask("hash"))

    def __bool__(self) -> bool:
        return bool(self._ask("true"))

    def __contains__(self, value: object) -> bool:
        return bool(self._ask("contains", value))

    def __exit__(self, *error: Any) -> bool:
        return bool(self._ask("exit"))

    def __call__(self, /, *given: Any, **named: Any) -> Any:
        """Call it, if it can be."""
        return self._ask("call", *given, **named)


def _asks(op: str) -> Callable[..., Any]:
    return lambda self, *given: self._ask(op, *given)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "get": getattr,
    "set": setattr,
    "eq": operator.eq,
    "hash": hash,
    "true": bool,
    "contains": operator.contains,
    "call": lambda one, *given, **named: one(*given, **named),
    "exit": lambda one: one.__exit__(None, None, None),
}
_SPECIAL: dict[str, Callable[..., Any]] = {
    "iter": iter,
    "next": next,
    "len": len,
    "str": str,
    "repr": repr,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "enter": lambda one: one.__enter__(),
    "int": int,
    "float": float,
    "index": operator.index,
    "abs": abs,
    "neg": operator.neg,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "radd": lambda one, other: other + one,
    "rmul": lambda one, other: other * one,
}
_OPERATIONS |= _SPECIAL
for _name in _SPECIAL:
    setattr(Guest, f"__{_name}__", _asks(_name))


def apply(one: Any, op: str, given: list[Any], named: dict[str, Any]) -> Any:
    """Do what the program asks of an object of the tests.

    Raises:
        AttributeError: If it asks for what would lead to the tests themselves.
    """
    if op in ("get", "set"):
        name = given[0]
        if type(name) is not str or name.startswith("_") or isinstance(one, _CLOSED):
            raise AttributeError(name)
        if isinstance(one, types.GeneratorType) and (op == "set" or name not in _OF_GENERATORS):
            raise AttributeError(name)
    return _OPERATIONS[op](one, *given, **named)
