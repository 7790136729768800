"""Looks up the tool formats of installed plugins."""

from __future__ import annotations

import functools

from rlvr_core.api import PluginError, ToolFormat
from rlvr_core.plugins.host import load_host


@functools.cache
def tool_format(name: str) -> ToolFormat:
    """Return the tool format of this name, registered by any installed plugin.

    Args:
        name: Full name, or the short name if only one plugin uses it: ``env/hermes``,
            ``hermes``.

    Raises:
        ConfigError: If there is none of this name; names similar ones.
        PluginError: If its plugin is missing or broken, or what it registered is not a tool format.
    """
    entry = load_host().entry("tool_format", name, "")
    with entry.named("cannot be constructed"):
        instance = entry.load()()
    if not isinstance(instance, ToolFormat):
        raise PluginError(
            f"{entry.target} is no tool format",
            where=str(entry.registered),
            remedy=f"report it to the author of {entry.plugin}: see rlvr_core.api.ToolFormat",
        )
    return instance
