"""Plain functions as components: kinds that allow it wrap the function in a generated class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rlvr_core import api
from rlvr_core.api import ConfigError
from rlvr_core.plugins.dataset_functions import dataset_of
from rlvr_core.plugins.learning_functions import advantage_of, loss_of, schedule_of
from rlvr_core.plugins.verifier_functions import verifier_of

_PROTOCOLS = {
    "advantage": "AdvantageEstimator",
    "dataset": "DatasetLoader",
    "optimizer": "OptimizerBuilder",
    "transport": "WeightTransport",
}
"""Protocol names in ``rlvr_core.api``, by kind, kept as names so that a protocol is imported only
when a component of its kind is used. For other kinds the protocol has the kind's own name."""


ADAPTERS: dict[str, Callable[[Any], type[Any]]] = {
    "advantage": advantage_of,
    "dataset": dataset_of,
    "loss": loss_of,
    "schedule": schedule_of,
    "verifier": verifier_of,
}
"""What makes a component of a plain function, by kind."""


def component(kind: str, found: Any) -> Any:
    """Return the component class: ``found`` itself, or a class that wraps a plain function.

    Args:
        kind: The kind of component expected.
        found: The object that the component's target resolved to.

    Raises:
        ConfigError: If it is a function but this kind does not accept functions, or its parameters
            do not fit.
    """
    if not inspect.isfunction(found) or kind in ("command", "forward_path"):
        return found
    adapter = ADAPTERS.get(kind)
    if adapter is None:
        raise ConfigError(
            f"{found.__qualname__} is a function, and a {kind.replace('_', ' ')} is a class",
            where=f"{found.__code__.co_filename}:{found.__code__.co_firstlineno}",
            remedy=f"functions can be: {', '.join(ADAPTERS)}",
        )
    return adapter(found)


def check_kind(kind: str, use: str, found: Any, where: str) -> None:
    """Refuse an object that cannot be a component of this kind.

    Args:
        kind: The kind of component expected.
        use: The name the user gave.
        found: The object it resolved to.
        where: Where the user wrote the name.

    Raises:
        ConfigError: If it is not a class, or lacks a method of the kind's protocol.
    """
    what = kind.replace("_", " ")
    article = "an" if what[0] in "aeiou" else "a"
    if not isinstance(found, type):
        raise ConfigError(
            f"'{use}' is a {type(found).__name__}, not {article} {what}",
            where=where,
            remedy="name a class"
            + (" or a function" if kind in ADAPTERS else "")
            + ", defined with class or def",
        )
    protocol = getattr(api, _PROTOCOLS.get(kind) or kind.title().replace("_", ""), object)
    methods = [name for name, value in vars(protocol).items() if inspect.isfunction(value)]
    public = [name for name in methods if name == "__call__" or not name.startswith("_")]
    missing = [name for name in public if not _has(found, name)]
    if kind == "verifier" and _has(found, "verify_group"):
        missing = []  # a GroupVerifier need not judge single completions
    if missing:
        raise ConfigError(
            f"'{use}' is not {article} {what}: it has no method {', '.join(missing)}",
            where=where,
            remedy=f"what {article} {what} has is in rlvr docs plugins; none of it is async",
        )


def _has(found: type[Any], name: str) -> bool:
    own = next((vars(base)[name] for base in found.__mro__ if name in vars(base)), None)
    return own is not None and not inspect.iscoroutinefunction(own)
