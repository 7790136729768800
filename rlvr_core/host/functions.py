"""Plain functions as components: each kind that allows it has a class made of the function."""

from __future__ import annotations

import inspect
from typing import Any

from rlvr_core import api
from rlvr_core.api import ConfigError
from rlvr_core.host.discovery import core_service, registered_by_core

_PROTOCOLS = {
    "advantage": "AdvantageEstimator",
    "dataset": "DatasetLoader",
    "optimizer": "OptimizerBuilder",
    "transport": "WeightTransport",
}
"""Names in ``rlvr_core.api``, so that none is imported before a component of its kind is named;
the protocol of another kind has the kind's own name."""


def component(kind: str, found: Any) -> Any:
    """The component class that ``found`` is or, a plain function, stands for.

    Args:
        kind: What it is to be.
        found: What the target of a component names.

    Raises:
        ConfigError: If it is a function and this kind is not made of functions, or its parameters
            do not fit.
    """
    if not inspect.isfunction(found) or kind in ("command", "service", "forward_path"):
        return found
    adapter = core_service(f"{kind}-function")
    if adapter is None:
        raise ConfigError(
            f"{found.__qualname__} is a function, and a {kind.replace('_', ' ')} is a class",
            where=f"{found.__code__.co_filename}:{found.__code__.co_firstlineno}",
            remedy=f"functions can be: {', '.join(_kinds())}",
        )
    return adapter(found)


def _kinds() -> list[str]:
    """Kinds of which a plain function can be a component."""
    services = registered_by_core("register_services")
    return [name.removesuffix("-function") for name in services if name.endswith("-function")]


def check_kind(kind: str, use: str, found: Any, where: str) -> None:
    """Refuse what cannot be a component of this kind.

    Args:
        kind: What it is to be.
        use: How the user named it.
        found: What that names.
        where: Where the user wrote it.

    Raises:
        ConfigError: If it is no class, or lacks a method of the kind's protocol.
    """
    what = kind.replace("_", " ")
    article = "an" if what[0] in "aeiou" else "a"
    if not isinstance(found, type):
        raise ConfigError(
            f"'{use}' is a {type(found).__name__}, not {article} {what}",
            where=where,
            remedy="name a class"
            + (" or a function" if kind in _kinds() else "")
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
            remedy=f"what {article} {what} has is in docs/plugins.md; none of it is async",
        )


def _has(found: type[Any], name: str) -> bool:
    own = next((vars(base)[name] for base in found.__mro__ if name in vars(base)), None)
    return own is not None and not inspect.iscoroutinefunction(own)
