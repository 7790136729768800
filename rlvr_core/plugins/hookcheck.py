"""Checks a plugin's module for mistakes before any of its hooks is called.

pluggy ignores a hook implementation whose name it does not know, and a generator or coroutine
whose body never runs; either way the plugin would silently do nothing.
"""

from __future__ import annotations

import difflib
import inspect
import linecache
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rlvr_core.api import API_VERSION
from rlvr_core.api import hooks as hookspecs
from rlvr_core.plugins.discovery import NOWHERE, Place, of_function

HOOK_PARAMETERS = {
    name: tuple(inspect.signature(value).parameters)
    for name, value in vars(hookspecs).items()
    if hasattr(value, "rlvr_spec")
}
"""Parameter names of every hook, by hook name."""


class PluginProblem(NamedTuple):
    """One mistake in a plugin.

    Attributes:
        message: The fault, in one sentence.
        place: The line that its author has to look at.
        remedy: What to do, one line per step.
    """

    message: str
    place: Place
    remedy: tuple[str, ...]


def faults(plugin: object, package: str, distribution: str) -> Iterator[PluginProblem]:
    """Yield every mistake found in an imported plugin.

    Args:
        plugin: The module, or the object its entry point names.
        package: Its top-level package.
        distribution: Distribution that the user has to install or update.
    """
    if (version := getattr(plugin, "RLVR_API", API_VERSION)) != API_VERSION:
        yield PluginProblem(
            f"it was written for plugin API {version!r}, and this rlvr-core has {API_VERSION}",
            _assignment(str(getattr(plugin, "__file__", "")), "RLVR_API"),
            (f"pip install --upgrade rlvr-core {distribution}",),
        )
        return
    hooks = 0
    for name in sorted(vars(plugin) if inspect.ismodule(plugin) else dir(plugin)):
        value = inspect.getattr_static(plugin, name)
        function = getattr(value, "__func__", value)
        options = getattr(value, "rlvr_impl", None) or getattr(function, "rlvr_impl", None)
        if isinstance(options, dict):
            hooks += 1
            yield from _hook(options.get("specname") or name, function, options)
        elif (
            name in HOOK_PARAMETERS
            and getattr(value, "__module__", "").partition(".")[0] == package
        ):
            yield PluginProblem(
                f"hook {name!r} is not marked, so it would never be called",
                of_function(value) if callable(value) else NOWHERE,
                (f"write @hookimpl above def {name}",),
            )
            hooks += 1
    if not hooks:
        yield PluginProblem(
            "it implements no hook",
            Place(str(getattr(plugin, "__file__", "")), 1),
            ("mark its hooks with @hookimpl; they are explained in rlvr docs plugins#hooks",),
        )


def _hook(
    name: str, function: Callable[..., Any], options: dict[str, Any]
) -> Iterator[PluginProblem]:
    place = of_function(function)
    if name not in HOOK_PARAMETERS:
        if not options.get("optionalhook"):
            close = difflib.get_close_matches(name, HOOK_PARAMETERS, n=1)
            yield PluginProblem(
                f"there is no hook called {name!r}",
                place,
                (
                    f"did you mean: {close[0]}?"
                    if close
                    else f"the hooks are: {', '.join(HOOK_PARAMETERS)}",
                ),
            )
        return
    if options.get("wrapper") or options.get("hookwrapper"):
        yield PluginProblem(
            f"hook {name!r} is a wrapper, which rlvr has no use for",
            place,
            ("write @hookimpl without wrapper or hookwrapper",),
        )
    elif inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        yield PluginProblem(
            f"the body of hook {name!r} would never run: it is a coroutine or a generator",
            place,
            ("write it as a plain function, without async and yield",),
        )
    yield from _arguments(name, function, place)


def _arguments(name: str, function: Callable[..., Any], place: Place) -> Iterator[PluginProblem]:
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    wanted = [p.name for p in parameters if p.default is p.empty and p.kind not in (2, 4)]
    unknown = [argument for argument in wanted if argument not in HOOK_PARAMETERS[name]]
    by_name_only = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if unknown or by_name_only:
        yield PluginProblem(
            f"hook {name!r} asks for {', '.join(unknown or by_name_only)}, which it is not given",
            place,
            (f"write def {name}({', '.join(HOOK_PARAMETERS[name])})",),
        )


def _assignment(file: str, variable: str) -> Place:
    """Return the line on which a module assigns a variable; else its first line."""
    for number, line in enumerate(linecache.getlines(file), 1):
        if re.match(rf"{variable}\s*[:=]", line):
            return Place(file, number)
    return Place(file, 1)
