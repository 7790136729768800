"""Exceptions as plain data, and made again of it."""

from __future__ import annotations

import builtins
import sys
from typing import Any

from rlvr_code.inside import codec


def told(error: BaseException) -> list[Any]:
    """The transferred parts of an exception: its classes, texts, arguments and attributes."""
    return [
        lineage(type(error)),
        message(error),
        describe(error),
        [_data(argument) for argument in error.args],
        {name: value for name, value in vars(error).items() if _crosses(value)},
    ]


def lineage(kind: type) -> list[list[Any]]:
    """Name and names of bases of each class that an exception is of, but for Python's own."""
    mro = type.__getattribute__(kind, "__mro__")
    return [
        [_name(ancestor), [_name(base) for base in ancestor.__bases__]]
        for ancestor in mro
        if ancestor.__module__ != "builtins"
    ]


def _name(kind: type) -> str:
    plain = kind.__module__ in ("builtins", "solution")
    return kind.__name__ if plain else f"{kind.__module__}.{kind.__name__}"


def _data(value: Any) -> Any:
    return value if _crosses(value) else message(value)


def _crosses(value: Any) -> bool:
    try:
        codec.dumps(value)
    except BaseException:
        return False
    return True


class Errors:
    """The exceptions of a program, in the process of the tests: one class for each of its names."""

    def __init__(self) -> None:
        self._known: dict[str, type[BaseException]] = {}

    def kind(self, name: str, classes: list[list[Any]]) -> type[BaseException]:
        """A class by its name; ``classes`` is what ``lineage`` gives."""
        for class_name, bases in reversed(classes):
            if class_name not in self._known:
                parents = tuple(dict.fromkeys(map(self._base, bases)))
                self._known[class_name] = _library(class_name) or type(
                    class_name, parents, {"__str__": _text}
                )
        return self._base(name)

    def made(self, data: list[Any]) -> BaseException:
        """An exception of what ``told`` gives."""
        classes, text, described, given, attributes = data
        name = classes[0][0] if classes else described.partition(":")[0]
        try:
            kind = self.kind(name, classes)
            error = kind.__new__(kind, *given)
            error.args = tuple(given)
        except TypeError:
            return RuntimeError(described)
        vars(error).update(attributes)
        vars(error).update({"text of the program": text} if type(error).__str__ is _text else {})
        return error

    def _base(self, name: str) -> type[BaseException]:
        known = self._known.get(name) or vars(builtins).get(name)
        is_error = isinstance(known, type) and issubclass(known, BaseException)
        return known if is_error else Exception  # type: ignore[return-value]


def _text(error: BaseException) -> str:
    return str(vars(error).get("text of the program", "")) or BaseException.__str__(error)


def _library(name: str) -> type[BaseException] | None:
    """An exception of a module of the library that the tests have imported."""
    module, _, last = name.rpartition(".")
    value = getattr(sys.modules.get(module), last, None)
    is_error = isinstance(value, type) and issubclass(value, Exception)
    return value if is_error else None


def message(error: Any) -> str:
    """The text of an error; empty if it cannot be had."""
    try:
        return str(error)[:1000]
    except BaseException:
        return ""


def describe(error: BaseException) -> str:
    """An error in a line, whatever its class does when it is asked."""
    try:
        return f"{type(error).__name__}: {error!s}"[:1000]
    except BaseException:
        return "an error that cannot be described"
