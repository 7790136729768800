"""Plain functions as components: kinds that allow it wrap the function in a generated class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from rlvr_core import api
from rlvr_core.api import ConfigError
from rlvr_core.plugins.wrapping import place_of

_PROTOCOLS = {
    "advantage": "AdvantageEstimator",
    "dataset": "DatasetLoader",
    "optimizer": "OptimizerBuilder",
    "transport": "WeightTransport",
}
"""Protocol names in ``rlvr_core.api``, by kind, kept as names so that a protocol is imported only
when a component of its kind is used. For other kinds the protocol has the kind's own name."""


_BY_FUNCTION = ("advantage", "dataset", "loss", "schedule", "verifier")
"""Kinds of which a plain function can be a component."""


def component(kind: str, target: Any) -> Any:
    """Return the component class: ``target`` itself, or a class that wraps a plain function.

    Args:
        kind: The kind of component expected.
        target: The object that the component's target resolved to.

    Raises:
        ConfigError: If it is a function but this kind does not accept functions, or its parameters
            do not fit.
    """
    if not inspect.isfunction(target) or kind in ("command", "forward_path"):
        return target
    if kind not in _BY_FUNCTION:
        raise ConfigError(
            f"{target.__qualname__} is a function, and a {kind.replace('_', ' ')} is a class",
            where=place_of(target),
            remedy=f"functions can be: {', '.join(_BY_FUNCTION)}",
        )
    return _adapter(kind)(target)


def _adapter(kind: str) -> Callable[[Any], type[Any]]:
    """Return what makes a component of a function; imported here, as most runs name none."""
    if kind == "dataset":
        from rlvr_core.plugins.dataset_functions import dataset_of

        return dataset_of
    if kind == "verifier":
        from rlvr_core.plugins.verifier_functions import verifier_of

        return verifier_of
    from rlvr_core.plugins.learning_functions import learning_of

    return partial(learning_of, kind)


def check_kind(kind: str, use: str, target: Any, where: str) -> None:
    """Refuse an object that cannot be a component of this kind.

    Args:
        kind: The kind of component expected.
        use: The name the user gave.
        target: The object it resolved to.
        where: Where the user wrote the name.

    Raises:
        ConfigError: If it is not a class, or lacks a method of the kind's protocol.
    """
    what = kind.replace("_", " ")
    article = "an" if what[0] in "aeiou" else "a"
    if not isinstance(target, type):
        raise ConfigError(
            f"'{use}' is a {type(target).__name__}, not {article} {what}",
            where=where,
            remedy="name a class"
            + (" or a function" if kind in _BY_FUNCTION else "")
            + ", defined with class or def",
        )
    protocol = getattr(api, _PROTOCOLS.get(kind) or kind.title().replace("_", ""), object)
    methods = [name for name, value in vars(protocol).items() if inspect.isfunction(value)]
    public = [name for name in methods if name == "__call__" or not name.startswith("_")]
    missing = [name for name in public if not _has(target, name)]
    if kind == "verifier" and _has(target, "verify_group"):
        missing = []  # a GroupVerifier need not judge single completions
    if missing:
        raise ConfigError(
            f"'{use}' is not {article} {what}: it has no method {', '.join(missing)}",
            where=where,
            remedy=f"what {article} {what} has is in rlvr docs plugins; none of it is async",
        )


def _has(target: type[Any], name: str) -> bool:
    method = next((vars(base)[name] for base in target.__mro__ if name in vars(base)), None)
    return method is not None and not inspect.iscoroutinefunction(method)
