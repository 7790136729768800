"""Exceptions as text, and from text."""

from __future__ import annotations

import builtins
from typing import Any


def exception(kind: str, text: str) -> Exception:
    """The built-in exception of this name, or one that mentions it."""
    found = vars(builtins).get(kind)
    if isinstance(found, type) and issubclass(found, Exception):
        return found(text)
    return RuntimeError(f"{kind}: {text}")


def takes_anything(error: BaseException, *given: Any, **named: Any) -> None:
    """What an exception of the tests has been made of came over with it."""


def kind_of(error: BaseException) -> str:
    """Name of the built-in exception that an error is, or derives from."""
    for base in type.mro(type(error)):
        name = str(base.__name__)
        if vars(builtins).get(name) is base:
            return name
    return "Exception"


def told(error: BaseException, raised: object) -> tuple[Any, ...]:
    """What the tests are told of an error: its kind, texts, and itself as it can cross."""
    return (kind_of(error), message(error), describe(error), raised)


def message(error: BaseException) -> str:
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
