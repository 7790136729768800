"""Finds the environment that ``rlvr env serve`` serves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError
from rlvr_core.toolkit import ComponentRef, build, load_config, load_host, parse_options


def served(what: str, options: Sequence[str]) -> tuple[Any, str]:
    """Construct an environment.

    Args:
        what: Name of the environment, or a config with one.
        options: ``key=value`` of its own options; of a config's, by the key in the config.

    Returns:
        The environment and its full name.

    Raises:
        ConfigError: If there is none, or its options are wrong.
    """
    host = load_host()
    ref: ComponentRef
    if Path(what).suffix in (".yaml", ".yml"):
        ref = load_config(what, options).config.environment
        where = f"{what}: environment"
        if ref.use == "auto":
            raise ConfigError(
                "environment.use is 'auto', which names no environment to serve",
                where=where,
                remedy="name one there, or on the command line: rlvr env serve NAME",
            )
    else:
        given = {"use": what, "with": parse_options(options, "--set")}
        ref, where = ComponentRef.model_validate(given), "NAME"
    name = host.entry("environment", ref.use, where).name
    if name == "env/remote":
        raise ConfigError("env/remote plays with a server; it is no environment to serve")
    return build(host, "environment", ref, where), name
