"""Values of Python's library that both processes have under a name: classes, members, aliases.

They are written by their names and found again by them, among the modules that are loaded. Nothing
is imported, called or made that is not of the kinds here.
"""

from __future__ import annotations

import datetime
import enum
import functools
import importlib
import inspect
import operator
import sys
import types
import typing
import zoneinfo
from collections.abc import Callable
from typing import Any

imports: list[bool] = []
"""Not empty where a module that is not loaded is: in the program's process, for the tests."""
SINGLE = {"Ellipsis": ..., "NotImplemented": NotImplemented}
_NAMES = {id(value): name for name, value in SINGLE.items()}
_KINDS = tuple(inspect._ParameterKind)
_HIDDEN = {
    one.__name__: one
    for one in vars(types).values()
    if isinstance(one, type) and one.__module__ == "builtins"
}
"""Classes of Python's own that ``builtins`` does not name."""
_OF_ALIASES = ("builtins", "collections", "collections.abc")
"""Where the classes are defined of which aliases cross: one can be called as its class can."""
ZONES = (datetime.timezone, zoneinfo.ZoneInfo)
"""Classes of time zones that both processes have."""
_ALIASES = {types.GenericAlias, types.UnionType} | {
    type(one)
    for one in (
        typing.List[int],  # noqa: UP006
        typing.Optional[int],  # noqa: UP045
        typing.Callable[[int], int],
        typing.Literal[1],
        typing.Annotated[int, 1],
    )
}


_VALUES: dict[tuple[str, str], Callable[[Any], tuple[Any, ...]]] = {
    ("zoneinfo", "ZoneInfo"): lambda value: (value.key,),
    ("statistics", "NormalDist"): lambda value: (value.mean, value.stdev),
} | {
    ("ipaddress", f"IPv{version}{kind}"): lambda value: (str(value),)
    for version in (4, 6)
    for kind in ("Address", "Network", "Interface")
}
"""Classes of immutable values, and what an object of each is made of."""


def written(value: Any, encode: Callable[[Any], Any]) -> Any:
    """A value as JSON; None if it is none of these."""
    exact = type(value)
    if id(value) in _NAMES:
        return {"t": "single", "v": _NAMES[id(value)]}
    if type(exact) is enum.EnumMeta and of_library(exact):
        return {"t": "member", "v": [exact.__module__, exact.__qualname__, encode(value._value_)]}
    if value is typing.Any or value is typing.Union or value is typing.Optional:
        return {"t": "form", "v": getattr(value, "_name", None) or "Any"}
    if exact in _ALIASES:
        return _alias(value, encode)
    if exact is inspect.Signature:
        return {"t": "signature", "v": _signature(value, encode)}
    place = (exact.__module__, exact.__qualname__)
    if place in _VALUES:
        return {"t": "value", "v": [*place, encode(_VALUES[place](value))]}
    if exact is datetime.timezone:
        return {"t": "timezone", "v": encode((value.utcoffset(None), value.tzname(None)))}
    return None


def of_library(kind: type) -> bool:
    """Whether a class is one of Python's library, and found there by its name."""
    if kind.__module__.partition(".")[0] not in sys.stdlib_module_names:
        return False
    return found(kind.__module__, kind.__qualname__) is kind


def found(module: str, name: str) -> Any:
    """What a loaded module of the library has under a name; None for nothing."""
    if module == "builtins" and name in _HIDDEN:
        return _HIDDEN[name]
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return None
    if module not in sys.modules:
        if not imports:
            return None
        importlib.import_module(module)
    one: Any = sys.modules[module]
    for part in name.split("."):
        one = vars(one).get(part) if isinstance(one, type | types.ModuleType) else None
    return one


def _plain(one: Any) -> bool:
    """Whether an argument of an alias means the same in both processes."""
    if type(one) in _ALIASES:
        return all(map(_plain, typing.get_args(one)))
    if isinstance(one, list | tuple):
        return all(map(_plain, one))
    form = one is typing.Any or one is ... or type(one) in (int, str, bool, type(None))
    return form or isinstance(one, type)


def _alias(value: Any, encode: Callable[[Any], Any]) -> Any:
    origin, given = typing.get_origin(value), typing.get_args(value)
    if not all(map(_plain, given)):
        return None
    if isinstance(value, types.UnionType):
        return {"t": "union", "v": encode(given)}
    if origin is typing.Union:
        return {"t": "alias", "v": ["Union", encode(given)]}
    if isinstance(value, types.GenericAlias):
        if not isinstance(origin, type) or origin.__module__ not in _OF_ALIASES:
            return None
        return {"t": "alias", "v": [[origin.__module__, origin.__qualname__], encode(given)]}
    name = "Annotated" if origin is typing.Annotated else getattr(value, "_name", None)
    return {"t": "alias", "v": [name, encode(given)]} if name in typing.__all__ else None


def _signature(value: inspect.Signature, encode: Callable[[Any], Any]) -> list[Any]:
    empty = inspect.Signature.empty

    def maybe(one: Any) -> list[Any]:
        return [] if one is empty else [encode(one)]

    parameters = [
        [one.name, int(one.kind), maybe(one.default), maybe(one.annotation)]
        for one in value.parameters.values()
    ]
    return [parameters, maybe(value.return_annotation)]


def _read_single(inner: Any, decode: Callable[[Any], Any]) -> Any:
    return SINGLE[inner]


def _read_member(inner: Any, decode: Callable[[Any], Any]) -> Any:
    kind = found(str(inner[0]), str(inner[1]))
    if type(kind) is not enum.EnumMeta:
        raise ValueError("no enumeration of the library")
    return kind(decode(inner[2]))


def _read_value(inner: Any, decode: Callable[[Any], Any]) -> Any:
    place = (str(inner[0]), str(inner[1]))
    if place not in _VALUES:
        raise ValueError("no value of the library")
    return getattr(importlib.import_module(place[0]), place[1])(*decode(inner[2]))


def _read_form(inner: Any, decode: Callable[[Any], Any]) -> Any:
    return {"Any": typing.Any, "Union": typing.Union, "Optional": typing.Optional}[inner]


def _read_alias(inner: Any, decode: Callable[[Any], Any]) -> Any:
    given = decode(inner[1])
    if not all(map(_plain, given)):
        raise ValueError("no alias")
    if isinstance(inner[0], list):
        module, name = map(str, inner[0])
        kind = found(module, name)
        if not isinstance(kind, type) or module not in _OF_ALIASES:
            raise ValueError("no alias")
        return types.GenericAlias(kind, given)
    if inner[0] not in typing.__all__:
        raise ValueError("no alias")
    return getattr(typing, inner[0])[given if len(given) != 1 else given[0]]


def _read_union(inner: Any, decode: Callable[[Any], Any]) -> Any:
    given = decode(inner)
    if not all(map(_plain, given)):
        raise ValueError("no alias")
    return functools.reduce(operator.or_, given)


def _read_signature(inner: Any, decode: Callable[[Any], Any]) -> Any:
    empty = inspect.Signature.empty

    def maybe(one: Any) -> Any:
        return decode(one[0]) if one else empty

    parameters = [
        inspect.Parameter(name, _KINDS[kind], default=maybe(default), annotation=maybe(of))
        for name, kind, default, of in inner[0]
    ]
    return inspect.Signature(
        parameters, return_annotation=maybe(inner[1]), __validate_parameters__=True
    )


def _read_timezone(inner: Any, decode: Callable[[Any], Any]) -> Any:
    return datetime.timezone(*decode(inner))


READERS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "single": _read_single,
    "member": _read_member,
    "value": _read_value,
    "form": _read_form,
    "alias": _read_alias,
    "union": _read_union,
    "signature": _read_signature,
    "timezone": _read_timezone,
}
