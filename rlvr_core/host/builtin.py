"""The plugin ``core``, which comes with rlvr, and its commands without any other plugin."""

from __future__ import annotations

import importlib
from functools import cache

import rlvr_core
from rlvr_core.host import origin
from rlvr_core.host.discovery import CORE, Found

FOUND = Found(CORE, "rlvr_core.builtin.plugin", "rlvr-core", rlvr_core.__version__, origin.NOWHERE)
"""Where it is: the kernel names its module here only, and never imports it by name."""


class _Commands(dict[str, tuple[str, str]]):
    """Takes the place of a ``Registrar``, which costs ``rlvr --help`` the import of pydantic."""

    def add(self, name: str, target: str, *, summary: str) -> None:
        self[name] = (target, summary)


@cache
def builtin_commands() -> dict[str, tuple[str, str]]:
    """Target and summary of each command of the plugin ``core``, in the order of registration."""
    found = _Commands()
    importlib.import_module(FOUND.module).register_commands(found)
    return dict(found)
