"""Checks the name of a new plugin, and derives the names in its package."""

from __future__ import annotations

import keyword
import os
import re
import sys
from dataclasses import dataclass
from importlib import metadata

from rlvr_core.api import ConfigError
from rlvr_core.plugins.discovery import FIRST_PARTY, canonical, find_plugins
from rlvr_core.plugins.loader import RESERVED
from rlvr_core.toolkit import load_host

_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Names:
    """The names in a package.

    Attributes:
        name: The plugin's, and its component's.
        module: Name of the module.
        distribution: Name for pip.
    """

    name: str
    module: str
    distribution: str

    def cls(self, source: str, kind: str) -> str:
        """Return a class name that a source does not use for something else."""
        words = [word.capitalize() for word in self.module.removeprefix("rlvr_").split("_")]
        plain = "".join(words)
        if re.search(rf"\b{plain}\b", source):
            return plain + "".join(word.capitalize() for word in kind.split("_"))
        return plain


def check_name(name: str) -> Names:
    """Return the names of a package.

    Raises:
        ConfigError: If the name cannot be a module's, or belongs to something else already.
    """
    snake = name.replace("-", "_")
    names = Names(name, f"rlvr_{snake}", f"rlvr-{snake.replace('_', '-')}")
    fault = _malformed(name, snake) or _taken(names, snake)
    if fault:
        what, remedy = fault
        raise ConfigError(f"a plugin cannot be called '{name}': {what}", remedy=remedy)
    return names


def _malformed(name: str, snake: str) -> tuple[str, str] | None:
    """Return what is wrong with the letters of a name, and what to do."""
    if keyword.iskeyword(snake) or keyword.issoftkeyword(snake):
        return "it is a word of Python's own", f"add a word: {name}-plugin"
    if _NAME.fullmatch(name) and not name.endswith(("-", "_")):
        return None
    mended = re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower())
    mended = mended.strip("-0123456789")
    return (
        "a name has lower-case letters, digits, '-' and '_', and begins with a letter",
        f"write {mended}" if mended else "choose another, such as my-plugin",
    )


def _taken(names: Names, snake: str) -> tuple[str, str] | None:
    """Return who has a name already, and what to do."""
    other = "choose another name"
    if names.name in RESERVED or names.name in _commands():
        return f"'rlvr {names.name}' is a command of rlvr", other
    if names.name in FIRST_PARTY:
        return f"it is the plugin of {FIRST_PARTY[names.name]}", other
    if snake in sys.stdlib_module_names:
        return f"'{snake}' is a module of Python's standard library", other
    plugins = {plugin.name: plugin for plugin in find_plugins(os.environ)}
    if names.name in plugins:
        installed = plugins[names.name]
        remedy = f"{other}, or uninstall that one: pip uninstall {installed.distribution}"
        return (
            f"{installed.distribution} {installed.version} is installed, a plugin of this name",
            remedy,
        )
    for distribution in (names.name, names.distribution):
        if version := _version(distribution):
            return f"the distribution {canonical(distribution)} {version} is installed", other
    return None


def _commands() -> set[str]:
    entries = load_host({"RLVR_PLUGINS": ""}).registry.of("command")
    return {entry.leaf for entry in entries if entry.plugin == "core"}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
