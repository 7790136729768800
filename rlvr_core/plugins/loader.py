"""Loads one plugin at a time and records the result."""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType, TracebackType
from typing import Any, Literal

import pluggy

from rlvr_core.api import RlvrError
from rlvr_core.api import hooks as hookspecs
from rlvr_core.plugins import discovery, hookcheck
from rlvr_core.plugins.discovery import CORE, Found, Place, registered_by_core
from rlvr_core.plugins.first_party import COMMANDS
from rlvr_core.plugins.hookcheck import HOOK_PARAMETERS, PluginProblem
from rlvr_core.plugins.registry import NAME, REGISTERING, PluginRegistrar, Registry

HEAVY = ("torch", "transformers", "vllm", "boto3", "datasets", "accelerate", "sagemaker")
"""Packages whose import by a plugin's module would slow every command down by seconds."""

RESERVED = frozenset({CORE, "run"})
"""Names no plugin may have: the core's own and those of the kernel's commands. The names of
commands that the core's own plugin registers are reserved too."""


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """The result of loading one installed plugin.

    Attributes:
        name: The plugin's name.
        distribution: Distribution that contains it.
        version: Version of that distribution.
        module: Module that implements its hooks.
        file: Path of that module; empty when it could not be imported.
        status: ``ok``; ``warned``: works, but has a problem; ``failed``: none of its components is
            available; ``off``: not loaded because the environment says so.
        problems: Its faults, or why it is off.
        hooks: Hooks it implements.
        components: ``(kind, full name)`` of each component it registered.
        seconds: Duration of its import and registration.
    """

    name: str
    distribution: str
    version: str
    module: str
    file: str
    status: Literal["ok", "warned", "failed", "off"]
    problems: tuple[PluginProblem, ...] = ()
    hooks: tuple[str, ...] = ()
    components: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The record as ``rlvr plugins list --json`` prints it."""
        return {
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
            "module": self.module,
            "file": self.file,
            "status": self.status,
            "problems": [
                {
                    "message": problem.message,
                    "file": problem.place.file,
                    "line": problem.place.line,
                    "remedy": list(problem.remedy),
                }
                for problem in self.problems
            ],
            "hooks": list(self.hooks),
            "components": [{"kind": kind, "name": name} for kind, name in self.components],
            "seconds": round(self.seconds, 4),
        }


def new_manager() -> pluggy.PluginManager:
    """Create a pluggy manager with our hook specifications and no plugins."""
    manager = pluggy.PluginManager("rlvr")
    manager.add_hookspecs(hookspecs)
    return manager


def load(
    one: Found, found: Sequence[Found], registry: Registry, manager: pluggy.PluginManager
) -> PluginRecord:
    """Load one plugin.

    Args:
        one: The plugin.
        found: All installed plugins, to detect clashes.
        registry: Receives its components; unchanged if it fails.
        manager: Receives its hooks; unchanged if it fails.
    """
    record = PluginRecord(one.name, one.distribution, one.version, one.module, "", "failed")
    if one.off:
        off = PluginProblem(f"turned off: {one.off}", discovery.NOWHERE, ("change that variable",))
        return replace(record, status="off", problems=(off,))
    problems = tuple(_name_faults(one, found))
    if problems:
        return replace(record, problems=problems)
    begin = time.perf_counter()
    watch = _HeavyWatch(one)
    own = Registry()
    try:
        # Output of a plugin must not end up in the --json output of a command.
        with watch, contextlib.redirect_stdout(sys.stderr):
            plugin = _import(one)
            record = replace(record, file=str(getattr(sys.modules[one.module], "__file__", "")))
            problems = tuple(hookcheck.faults(plugin, one.package, one.distribution))
            if manager.is_registered(plugin):
                problems = (_twice(one, str(manager.get_name(plugin))),)
            if problems:
                return replace(record, problems=problems)
            hooks = _register(one, plugin, own)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may even call sys.exit
        if one.name == CORE:
            raise
        return replace(record, problems=_raised(one, error))
    manager.register(plugin, one.name)
    registry.entries.update(own.entries)
    warnings = tuple(watch.problems())
    return replace(
        record,
        status="warned" if warnings else "ok",
        problems=warnings,
        hooks=hooks,
        components=tuple(own.entries),
        seconds=time.perf_counter() - begin,
    )


def describe(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _name_faults(one: Found, found: Sequence[Found]) -> Iterator[PluginProblem]:
    """Yield the faults that can be found before importing the plugin."""
    if one.name == CORE and one is not found[0]:
        yield PluginProblem(
            "the name 'core' is the core's own",
            one.declared,
            (f"rename the entry point of {one.distribution}, or uninstall it",),
        )
        return
    commands = RESERVED | registered_by_core("register_commands").keys() | COMMANDS.keys()
    if one.name != CORE and one.name in commands and not discovery.is_first_party(one):
        yield PluginProblem(
            f"a plugin cannot be called {one.name!r}, because 'rlvr {one.name}' is a command",
            one.declared,
            (f"rename the entry point of {one.distribution}",),
        )
    if not NAME.match(one.name):
        yield PluginProblem(
            f"{one.name!r} is not a name for a plugin",
            one.declared,
            (
                "rename its entry point: lower-case letters, digits, '.', '_' and '-', the first "
                "a letter or digit",
            ),
        )
    if not one.module.replace(".", "").isidentifier():
        yield PluginProblem(
            f"its entry point names no module: {one.target!r}",
            one.declared,
            (f"write it as {one.name} = package.module, and install {one.distribution} again",),
        )
    others = [o for o in found if o is not one and o.name == one.name and not o.off]
    if others and one.name != CORE:
        names = ", ".join(f"{other.distribution} {other.version}" for other in others)
        yield PluginProblem(
            f"its name {one.name!r} is also that of another plugin, of {names}; neither is loaded",
            one.declared,
            (
                f"turn one off: RLVR_PLUGINS_OFF={others[0].distribution}",
                f"or uninstall one: pip uninstall {others[0].distribution}",
            ),
        )


def _import(one: Found) -> object:
    target: object = importlib.import_module(one.module)
    for attribute in filter(None, one.target.partition(":")[2].split(".")):
        target = getattr(target, attribute.strip())
    return target


def _twice(one: Found, other: str) -> PluginProblem:
    return PluginProblem(
        f"it is the same module as plugin {other!r}",
        one.declared,
        (f"remove one of the two entry points of {one.distribution}",),
    )


def _register(one: Found, plugin: object, registry: Registry) -> tuple[str, ...]:
    """Call the registering hooks of one plugin only; return the names of all its hooks."""
    manager = new_manager()
    manager.register(plugin, one.name)
    for hook, kind in REGISTERING.items():
        getattr(manager.hook, hook)(registrar=PluginRegistrar(registry, kind, one.name))
    return tuple(name for name in HOOK_PARAMETERS if getattr(manager.hook, name).get_hookimpls())


def _raised(one: Found, error: BaseException) -> tuple[PluginProblem, ...]:
    """Describe an exception raised by a plugin's import or registration."""
    place = discovery.of_error(error, one.package)
    if place is discovery.NOWHERE:  # no line of the plugin ran: its module does not exist
        place = one.declared
    if isinstance(error, RlvrError):
        return tuple(
            PluginProblem(complaint.what, place, complaint.remedy) for complaint in error.complaints
        )
    again = f"pip install --force-reinstall {one.distribution}"
    remedy = (f"report it to the author of {one.distribution}, or install another version",)
    if isinstance(error, ImportError):
        remedy = (f"install it again with all it needs: {again}",)
    without = f"or do without it: RLVR_PLUGINS_OFF={one.name}"
    return (PluginProblem(describe(error), place, (*remedy, without)),)


class _HeavyWatch(importlib.abc.MetaPathFinder):
    """Records which heavy packages a plugin is the first to import, and on which line."""

    def __init__(self, one: Found) -> None:
        self.one = one
        self.before = {name for name in HEAVY if name in sys.modules}
        self.seen: dict[str, Place] = {}

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Always find nothing; note a heavy import and the line it comes from."""
        if fullname in HEAVY and fullname not in self.seen:
            self.seen[fullname] = discovery.of_import(sys._getframe(1), self.one.package)
        return None

    def problems(self) -> Iterator[PluginProblem]:
        """Yield one problem for each line that imported heavy packages."""
        places: dict[Place, list[str]] = {}
        for name, place in self.seen.items():
            if name in sys.modules and name not in self.before:
                places.setdefault(place, []).append(name)
        for place, names in places.items():
            yield PluginProblem(
                f"loading it imports {', '.join(sorted(names))}, which slows every command down",
                place,
                (
                    "move the import into the function or component module that needs it; "
                    "components are registered by strings for this reason",
                ),
            )
