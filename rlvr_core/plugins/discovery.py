"""Finds the installed plugins without importing them, and the line of their code that is at fault.

Reads package metadata only, so ``rlvr --help`` can afford it. The plugin ``core`` comes with rlvr.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata
from types import FrameType
from typing import Any, NamedTuple

from rlvr_core import FILE_PREFIX as FILE_PREFIX
from rlvr_core import __version__
from rlvr_core.plugins.first_party import COMMANDS
from rlvr_core.plugins.first_party import FIRST_PARTY as FIRST_PARTY


class Place(NamedTuple):
    """A line of a file; ``Place("", 0)`` if it is unknown."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


NOWHERE = Place("", 0)


def of_error(error: BaseException, package: str) -> Place:
    """Return the line to report for an error.

    Args:
        error: The caught exception.
        package: Top-level package of the plugin. Its innermost frame is reported, because the fault
            is seldom in the code that it calls.

    Returns:
        The line of a syntax error itself, else of the innermost frame of the package, else
        ``NOWHERE``.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return Place(error.filename, error.lineno or 0)
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return _innermost(reversed(frames), package)


def of_import(frame: FrameType | None, package: str) -> Place:
    """Return the place of the import statement in ``package`` that led to this frame."""
    return _innermost(traceback.walk_stack(frame), package)


def of_function(function: Callable[..., Any]) -> Place:
    """Return the place of a function's ``def`` line, which is below its decorators."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return NOWHERE
    for line in range(code.co_firstlineno, code.co_firstlineno + 50):
        if linecache.getline(code.co_filename, line).lstrip().startswith(("def ", "async def ")):
            return Place(code.co_filename, line)
    return Place(code.co_filename, code.co_firstlineno)


def _innermost(frames: Iterable[tuple[FrameType, int]], package: str) -> Place:
    for frame, line in frames:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package:
            return Place(frame.f_code.co_filename, line)
    return NOWHERE


GROUP = "rlvr"
CORE = "core"

ALLOW = "RLVR_PLUGINS"
BLOCK = "RLVR_PLUGINS_OFF"


class Found(NamedTuple):
    """An entry point of the group ``rlvr``.

    Attributes:
        name: The plugin's name: what comes before the slash in its components' names.
        target: What it names: ``module`` or ``module:attribute``.
        distribution: Name of the installed distribution it comes with.
        version: Version of that distribution.
        declared: File and line that declare the entry point.
        off: Why it must not be loaded; empty if it may be.
    """

    name: str
    target: str
    distribution: str
    version: str
    declared: Place
    off: str = ""

    @property
    def module(self) -> str:
        """Name of the module to import."""
        return self.target.partition(":")[0].strip()

    @property
    def package(self) -> str:
        """Top-level package of that module."""
        return self.module.partition(".")[0]


CORE_PLUGIN = Found(CORE, "rlvr_core.components", "rlvr-core", __version__, NOWHERE)
"""Entry point of the core's own plugin, whose module is named only here."""


class _Recorder(dict[str, tuple[str, str]]):
    """Stands in for a ``Registrar``: the names of commands are known before a host is loaded."""

    def add(self, name: str, target: str, *, summary: str, rank: int | None = None) -> None:
        self[name] = (target, summary)


@cache
def registered_by_core(hook: str) -> dict[str, tuple[str, str]]:
    """Return target and summary of each name the core's own plugin registers in a hook, in order.

    Args:
        hook: Such as ``register_commands``.
    """
    recorder = _Recorder()
    getattr(importlib.import_module(CORE_PLUGIN.module), hook)(recorder)
    return dict(recorder)


def registered_by(plugin: Found, hook: str) -> dict[str, tuple[str, str]]:
    """Return what an installed first-party plugin registers in a hook; nothing if it is broken.

    Only its light module is imported; ``rlvr plugins list`` says what is wrong with a broken one.
    """
    recorder = _Recorder()
    try:
        register = getattr(importlib.import_module(plugin.module), hook, None)
        if register is not None:
            register(recorder)
    except Exception:
        return {}
    return dict(recorder)


def commands_beside_core(env: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return target and summary of each command that first-party plugins put beside the core's."""
    owners = set(COMMANDS.values())
    commands: dict[str, tuple[str, str]] = {}
    for plugin in find_plugins(env):
        if plugin.name in owners and not plugin.off and is_first_party(plugin):
            registered = registered_by(plugin, "register_commands")
            commands |= {n: c for n, c in registered.items() if COMMANDS.get(n) == plugin.name}
    return commands


def is_first_party(plugin: Found) -> bool:
    """Whether the project publishes this plugin."""
    return FIRST_PARTY.get(plugin.name) == canonical(plugin.distribution)


def find_plugins(env: Mapping[str, str]) -> list[Found]:
    """List every installed plugin except the core, sorted by name and distribution.

    Args:
        env: Environment variables. ``RLVR_PLUGINS`` lists the only plugins to load (empty for
            none), ``RLVR_PLUGINS_OFF`` those not to load: comma-separated names of plugins or of
            distributions.
    """
    plugins = [_switched(plugin, env) for plugin in _installed()]
    return sorted(plugins, key=lambda plugin: (plugin.name, plugin.distribution))


def _installed() -> Iterator[Found]:
    """Yield the entry points of all distributions; of two copies on ``sys.path`` the first wins."""
    seen: set[str] = set()
    for distribution in metadata.distributions():
        text = distribution.read_text("entry_points.txt") or ""
        if f"[{GROUP}]" not in text:
            continue
        folder = getattr(distribution, "_path", None)
        file = str(folder / "entry_points.txt") if folder else ""
        name = distribution.name or (folder.name if folder else "unknown")
        if canonical(name) in seen:
            continue
        seen.add(canonical(name))
        version = distribution.version or "unknown"
        for entry, target, line in _entries(text):
            yield Found(entry, target, name, version, Place(file, line))


def _entries(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield name, target and line number of each entry in our entry-point group.

    A line without ``=`` gets an empty target; the loader reports it. The standard parser fails
    on such a line, for every plugin of every distribution at once.
    """
    section = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith(("#", ";")):
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif section == GROUP:
            name, _, target = line.partition("=")
            yield name.strip(), target.strip(), number


def _switched(point: Found, env: Mapping[str, str]) -> Found:
    names = {point.name, canonical(point.distribution)}
    if ALLOW in env and not names & _listed(env[ALLOW]):
        return point._replace(off=f"{ALLOW}={env[ALLOW]!r} does not name it")
    if names & _listed(env.get(BLOCK, "")):
        return point._replace(off=f"{BLOCK}={env[BLOCK]!r} names it")
    return point


def _listed(value: str) -> set[str]:
    names = {name.strip() for name in value.split(",") if name.strip()}
    return names | {canonical(name) for name in names}


def canonical(distribution: str) -> str:
    """Normalise a distribution's name as the packaging specification does before comparing."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
