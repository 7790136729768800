"""Classes of the tests that derive from classes of the program: they are made in its process.

Their methods stay functions of the tests, which the program calls back. ``super()`` in them is the
program's.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

from rlvr_code.inside import things
from rlvr_code.inside.border import CannotCrossError, Stands, is_remote

WRAPPED = "wrapped"
"""Tag of a property or the like of the tests."""
_WRAPPERS: dict[str, Any] = {
    "property": property,
    "staticmethod": staticmethod,
    "classmethod": classmethod,
    "cached_property": functools.cached_property,
}
_LEFT_OUT = ("__classcell__", "__module__", "__dict__", "__weakref__", "__firstlineno__")
_shipped: dict[Any, Any] = {}


def wrapped(value: Any) -> list[Any] | None:
    """Kind and functions of a property or the like; None if it is none."""
    if type(value) is property:
        return ["property", [value.fget, value.fset, value.fdel]]
    if type(value) in (staticmethod, classmethod):
        return [type(value).__name__, [value.__func__]]
    return ["cached_property", [value.func]] if type(value) is functools.cached_property else None


def unwrapped(name: str, given: list[Any]) -> Any:
    """The property or the like of such functions."""
    return _WRAPPERS[name](*given)


def derive(link: Any, name: str, bases: tuple[Any, ...], body: Any, named: dict[str, Any]) -> int:
    """Have the program make a class; its number.

    Args:
        link: To the program.
        name: Of the class.
        bases: Classes of the program, of the library and of the tests.
        body: What the class statement has bound.
        named: Keyword arguments of the class statement.

    Raises:
        CannotCrossError: If it derives from a class that cannot be had there.
    """
    items = [(key, value) for key, value in dict(body).items() if key not in _LEFT_OUT]
    for _, value in items:
        parts = wrapped(value)
        for one in [value] if parts is None else parts[1]:
            if isinstance(one, types.FunctionType):
                link.methods.append(one)
    found = tuple(_there(link, base) for base in bases)
    number = link.ask("subclass", None, [name, found, tuple(items)], named)
    if type(number) is not int:
        raise CannotCrossError(f"the class {name} cannot be made in the program's process")
    return number


def _there(link: Any, base: Any) -> Any:
    """A base in the program's process: a class of the tests is made there, too."""
    if is_remote(base) or base is object or things.of_library(base):
        return base
    if type(base) is not type:
        raise CannotCrossError(f"a class derives from {base.__name__} and a class of the program")
    if base not in _shipped:
        number = derive(link, base.__name__, base.__bases__, vars(base), {})
        _shipped[base] = link.handle(number)
    return _shipped[base]


def make(name: str, bases: tuple[Any, ...], items: Any, named: dict[str, Any]) -> Any:
    """Make a class in the program's process."""

    def fill(body: Any) -> None:
        body["__module__"] = "solution"
        for key, value in items:
            body[key] = value

    return types.new_class(name, bases, named, fill)


class Super(Stands):
    """``super()`` of an object of the program."""

    def __init__(self, remote: Any) -> None:
        object.__setattr__(self, "_remote", remote)

    def __getattribute__(self, name: str) -> Any:
        remote = object.__getattribute__(self, "_remote")
        return object.__getattribute__(remote, "_link").ask("get", remote, [name])


def super_of(link: Any, *given: Any) -> Any:
    """``super`` in test code."""
    if not given:
        frame = sys._getframe(2)
        local = frame.f_locals
        given = (local["__class__"], local[frame.f_code.co_varnames[0]])
    of, one = given
    if not is_remote(one):
        return super(of, one)
    return Super(link.ask("super", _shipped.get(of, of), [one]))
