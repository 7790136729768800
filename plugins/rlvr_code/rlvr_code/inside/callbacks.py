"""Functions of the tests in the program's process: with the same parameters, they call those."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rlvr_code.inside import codec

_KINDS = ("", "", "*", "", "**")
"""What stands before a parameter, by its kind."""


def told(number: int, function: Any, pen: codec.Pen) -> list[Any]:
    """What the program is told of a function of the tests: its name, text and parameters."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = None
    given: Any = None
    if parameters is not None:
        given = [
            [one.name, int(one.kind), one.default is not one.empty, _default(one, pen)]
            for one in parameters
        ]
    waits = inspect.iscoroutinefunction(function)
    hints = getattr(function, "__annotations__", {})
    if type(hints) is not dict or type(function.__name__) is not str:  # of a test double
        hints = {}
    name, doc = (one if type(one) is str else None for one in (function.__name__, function.__doc__))
    told_hints = [[name, codec.encode(hint, pen)] for name, hint in hints.items()]
    return [number, name or "function", doc, given, waits, told_hints, hasattr(function, "mock")]


def _default(one: inspect.Parameter, pen: codec.Pen) -> Any:
    return None if one.default is one.empty else codec.encode(one.default, pen)


def function(call_back: Callable[..., Any], value: list[Any], find: codec.Find) -> Any:
    """A function that calls one of the tests.

    Args:
        call_back: Has the tests do something with an object of theirs, by its number.
        value: What ``told`` gave.
        find: The meaning of tags in it.
    """
    number, name, doc, parameters, waits, hints, double = value

    def call(*given: Any, **named: Any) -> Any:
        return call_back(number, "call", *given, **named)

    made: Any = call
    if parameters is not None and not double:  # a test double notes how it has been called
        names: dict[str, Any] = {"_call_the_tests": call, "__name__": "tests"}
        exec(_text(parameters, waits), names)
        made = names["_function"]
        defaults = [(one, decoded(one, find)) for one in parameters if one[2]]
        made.__defaults__ = tuple(x for one, x in defaults if one[1] < 2) or None
        made.__kwdefaults__ = {one[0]: x for one, x in defaults if one[1] == 3} or None
    made.__name__ = made.__qualname__ = name
    made.__doc__ = doc
    made.__annotations__ = {one: codec.decode(hint, find) for one, hint in hints}
    made.__module__ = "tests"
    return made


def decoded(one: list[Any], find: codec.Find) -> Any:
    """A parameter's default."""
    return codec.decode(one[3], find)


def _text(parameters: list[Any], waits: bool) -> str:
    """Source text of a function that hands on what it is given.

    An argument that was not given, whose default is the tests' to give, is handed on as well: its
    default came over.
    """
    head, hand = [], []
    for at, (name, kind, has, _) in enumerate(parameters):
        if kind == 3 and not any(one[1] in (2, 3) for one in parameters[:at]):
            head.append("*")
        head.append(f"{_KINDS[kind]}{name}" + ("=None" if has else ""))
        if kind == 0 and (at + 1 == len(parameters) or parameters[at + 1][1] != 0):
            head.append("/")
        hand.append(f"{name}={name}" if kind == 3 else f"{_KINDS[kind]}{name}")
    start = "async def" if waits else "def"
    wait = "await " if waits else ""
    return (
        f"{start} _function({', '.join(head)}):\n"
        f"    return {wait}_call_the_tests({', '.join(hand)})\n"
    )
