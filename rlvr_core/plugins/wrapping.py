"""What classes that wrap a user's function share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rlvr_core.api import ConfigError


def class_of(function: Callable[..., Any], base: type[Any], **members: Any) -> type[Any]:
    """Return a component class named like the function, which it calls as ``self.function``."""
    members |= {"function": staticmethod(function), "__module__": function.__module__}
    return type(function.__name__, (base,), {**members, "__doc__": function.__doc__})


def place_of(function: Callable[..., Any]) -> str:
    """Return file and line of a function, below its decorators."""
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def refuse_coroutine(kind: str, function: Callable[..., Any]) -> None:
    """Refuse a function whose body does not run when it is called.

    Raises:
        ConfigError: If it is a coroutine; for all kinds but data also if it is a generator.
    """
    if (
        inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
        or (kind != "data" and inspect.isgeneratorfunction(function))
    ):
        generator, without = ("", "") if kind == "data" else (" or a generator", " and yield")
        raise ConfigError(
            f"the {kind} function {function.__name__} is a coroutine{generator}",
            where=place_of(function),
            remedy=f"write it as a plain function, without async{without}",
        )
