"""What stands in the program's process for objects of the tests: their attributes, calls and so on.

The program reads the tests' data only so far as they hand it over. Nothing leads from an object to
the tests' names: no attribute that begins with an underscore, none of a frame, function, generator
or module.
"""

from __future__ import annotations

import concurrent.futures
import functools
import operator
import types
from collections.abc import Callable
from typing import Any

from rlvr_code.inside.remote import Descriptor

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
_NAMES = ("__name__", "__qualname__", "__doc__")
"""What may be asked of a class."""


class Guest:
    """Stands for an object of the tests."""

    __slots__ = ("_ask",)

    def __init__(self, call_back: Callable[..., Any], number: int) -> None:
        object.__setattr__(self, "_ask", functools.partial(call_back, number))

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return self._ask("vars")

    def __instancecheck__(self, value: object) -> bool:
        return bool(self._ask("isinstance", value))

    def __subclasscheck__(self, kind: object) -> bool:
        return bool(self._ask("issubclass", kind))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _NAMES:
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

    def __await__(self) -> Any:
        yield from ()
        return self._ask("await")

    def __call__(self, /, *given: Any, **named: Any) -> Any:
        """Call it, if it can be."""
        return self._ask("call", *given, **named)


def guest(call_back: Callable[..., Any], number: int, name: str) -> Guest:
    """What stands for an object of the tests, of a class of that name."""
    if name not in _BY_NAME:
        _BY_NAME[name] = type(name, (Guest,), {"__slots__": ()})
    return _BY_NAME[name](call_back, number)


_BY_NAME: dict[str, type[Guest]] = {}


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
    "await": lambda one: _awaited(one),
    "vars": lambda one: {k: v for k, v in vars(one).items() if not k.startswith("_")},
    "isinstance": lambda one, value: isinstance(value, one),
    "issubclass": lambda one, kind: issubclass(kind, one),
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
        if op in ("get", "set") and _described(one) and not str(name).startswith("__"):
            return _OPERATIONS[op](one, *given)
        if op == "get" and _of_class(one, name):
            return getattr(one, name)
        if type(name) is not str or name.startswith("_") or isinstance(one, _CLOSED):
            raise AttributeError(name)
        if isinstance(one, types.GeneratorType) and (op == "set" or name not in _OF_GENERATORS):
            raise AttributeError(name)
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


def _awaited(one: Any) -> Any:
    """Wait for something of the tests in a loop of its own, as theirs waits for the program."""
    import asyncio

    async def main() -> Any:
        return await one

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main()).result()


def _described(one: Any) -> bool:
    """Whether something is of a class of the tests with a descriptor of the program.

    That keeps its values in the object, under any name.
    """
    kinds = [kind for kind in type(one).__mro__ if kind.__module__ == "tests"]
    return any(type(value) is Descriptor for kind in kinds for value in vars(kind).values())
