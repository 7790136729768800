"""Exceptions as text, and from text."""

from __future__ import annotations

import builtins
import functools
import types
from collections.abc import Sequence
from typing import Any, cast


def exception(kind: str, text: str) -> Exception:
    """The built-in exception of this name, or one that mentions it."""
    found = vars(builtins).get(kind)
    if isinstance(found, type) and issubclass(found, Exception):
        return found(text)
    return RuntimeError(f"{kind}: {text}")


def made(kind: Any, given: Sequence[Any], text: str) -> BaseException:
    """An exception of a class of Python's library with these arguments.

    Some, such as ``json.JSONDecodeError``, are made of others than they keep: those without.
    """
    try:
        return cast("BaseException", kind(*given))
    except Exception:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            return exception(str(kind.__name__), text)
    found = builtin_base(kind).__new__(kind)
    found.args = tuple(given)
    return cast("BaseException", found)


def builtin_base(kind: type) -> Any:
    """The built-in exception by which those of a class are made."""
    mro = type.__getattribute__(kind, "__mro__")
    return next(one for one in mro if one.__module__ == "builtins")


@functools.cache
def slots(kind: type) -> tuple[str, ...]:
    """Attributes that built-in exceptions have outside their dictionary, as ``errno``."""
    return tuple(
        name
        for base in type.mro(kind)
        if base.__module__ == "builtins"
        for name, one in vars(base).items()
        if isinstance(one, types.MemberDescriptorType | types.GetSetDescriptorType)
        and not name.startswith("_")
        and name not in ("args", "characters_written")
    )


def attributes(error: BaseException) -> dict[str, Any]:
    """What an exception has beside its arguments."""
    found = {name: getattr(error, name, None) for name in slots(cast("Any", type(error)))}
    found = {name: value for name, value in found.items() if value is not None}
    return found | vars(error)


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
