"""Loads one plugin at a time and records the result."""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
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
"""Names no plugin may have: the core's own and ``run``. The names of
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
        problems = [
            {"message": message, "file": place.file, "line": place.line, "remedy": list(remedy)}
            for message, place, remedy in self.problems
        ]
        return asdict(self) | {
            "problems": problems,
            "components": [{"kind": kind, "name": name} for kind, name in self.components],
            "seconds": round(self.seconds, 4),
        }


def new_manager() -> pluggy.PluginManager:
    """Create a pluggy manager with our hook specifications and no plugins."""
    manager = pluggy.PluginManager("rlvr")
    manager.add_hookspecs(hookspecs)
    return manager


def load(
    point: Found, installed: Sequence[Found], registry: Registry, manager: pluggy.PluginManager
) -> PluginRecord:
    """Load one plugin.

    Args:
        point: The plugin.
        installed: All installed plugins, to detect clashes.
        registry: Receives its components; unchanged if it fails.
        manager: Receives its hooks; unchanged if it fails.
    """
    record = PluginRecord(point.name, point.distribution, point.version, point.module, "", "failed")
    if point.off:
        off = PluginProblem(
            f"turned off: {point.off}", discovery.NOWHERE, ("change that variable",)
        )
        return replace(record, status="off", problems=(off,))
    problems = tuple(_name_faults(point, installed))
    if problems:
        return replace(record, problems=problems)
    begin = time.perf_counter()
    watch = _HeavyWatch(point)
    registered = Registry()
    try:
        # Output of a plugin must not end up in the --json output of a command.
        with watch, contextlib.redirect_stdout(sys.stderr):
            plugin = _import(point)
            record = replace(record, file=str(getattr(sys.modules[point.module], "__file__", "")))
            problems = tuple(hookcheck.faults(plugin, point.package, point.distribution))
            if manager.is_registered(plugin):
                problems = (_twice(point, str(manager.get_name(plugin))),)
            if problems:
                return replace(record, problems=problems)
            hooks = _register(point, plugin, registered)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may even call sys.exit
        if point.name == CORE:
            raise
        return replace(record, problems=_raised(point, error))
    manager.register(plugin, point.name)
    registry.entries.update(registered.entries)
    warnings = tuple(watch.problems())
    return replace(
        record,
        status="warned" if warnings else "ok",
        problems=warnings,
        hooks=hooks,
        components=tuple(registered.entries),
        seconds=time.perf_counter() - begin,
    )


def describe(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _name_faults(point: Found, installed: Sequence[Found]) -> Iterator[PluginProblem]:
    """Yield the faults that can be found before importing the plugin."""

    def fault(message: str, *remedy: str) -> PluginProblem:
        return PluginProblem(message, point.declared, remedy)

    name, rename = point.name, f"rename the entry point of {point.distribution}"
    if name == CORE:
        if point is not installed[0]:
            yield fault("the name 'core' is the core's own", f"{rename}, or uninstall it")
        return
    commands = RESERVED | registered_by_core("register_commands").keys() | COMMANDS.keys()
    if name in commands and not discovery.is_first_party(point):
        yield fault(f"a plugin cannot be called {name!r}: 'rlvr {name}' is a command", rename)
    if not NAME.match(name):
        yield fault(
            f"{name!r} is not a name for a plugin",
            f"{rename}: lower-case letters, digits, '.', '_' and '-', the first a letter or digit",
        )
    if not point.module.replace(".", "").isidentifier():
        yield fault(
            f"its entry point names no module: {point.target!r}",
            f"write it as {name} = package.module, and install {point.distribution} again",
        )
    others = [o for o in installed if o is not point and o.name == name and not o.off]
    if others:
        names = ", ".join(f"{other.distribution} {other.version}" for other in others)
        yield fault(
            f"its name {name!r} is also that of another plugin, of {names}; neither is loaded",
            f"turn one off: RLVR_PLUGINS_OFF={others[0].distribution}",
            f"or uninstall one: pip uninstall {others[0].distribution}",
        )


def _import(point: Found) -> object:
    target: object = importlib.import_module(point.module)
    for attribute in filter(None, point.target.partition(":")[2].split(".")):
        target = getattr(target, attribute.strip())
    return target


def _twice(point: Found, other: str) -> PluginProblem:
    return PluginProblem(
        f"it is the same module as plugin {other!r}",
        point.declared,
        (f"remove one of the two entry points of {point.distribution}",),
    )


def _register(point: Found, plugin: object, registry: Registry) -> tuple[str, ...]:
    """Call the registering hooks of one plugin only; return the names of all its hooks."""
    manager = new_manager()
    manager.register(plugin, point.name)
    for hook, kind in REGISTERING.items():
        getattr(manager.hook, hook)(registrar=PluginRegistrar(registry, kind, point.name))
    return tuple(name for name in HOOK_PARAMETERS if getattr(manager.hook, name).get_hookimpls())


def _raised(point: Found, error: BaseException) -> tuple[PluginProblem, ...]:
    """Describe an exception raised by a plugin's import or registration."""
    place = discovery.of_error(error, point.package)
    if place is discovery.NOWHERE:  # no line of the plugin ran: its module does not exist
        place = point.declared
    if isinstance(error, RlvrError):
        return tuple(
            PluginProblem(complaint.what, place, complaint.remedy) for complaint in error.complaints
        )
    again = f"pip install --force-reinstall {point.distribution}"
    remedy = (f"report it to the author of {point.distribution}, or install another version",)
    if isinstance(error, ImportError):
        remedy = (f"install it again with all it needs: {again}",)
    without = f"or do without it: RLVR_PLUGINS_OFF={point.name}"
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
