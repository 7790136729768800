"""What the rest of rlvr asks of plugins: a component by name, and to be told or to answer."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from rlvr_core.api import (
    ComponentConfig,
    ConfigError,
    DataReport,
    Finding,
    PluginError,
    RlvrError,
    RunData,
)
from rlvr_core.host import discovery, files, loader
from rlvr_core.host.discovery import Place, core_service
from rlvr_core.host.loader import PluginRecord
from rlvr_core.host.registry import Entry, Registry

if TYPE_CHECKING:
    from rlvr_core.api import Store

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class Host:
    """Every loaded plugin; made by ``load_host``.

    Attributes:
        registry: What the plugins registered.
        records: What became of each installed plugin, the core first.
        manager: The pluggy manager the plugins are registered with.
    """

    registry: Registry
    records: tuple[PluginRecord, ...]
    manager: pluggy.PluginManager
    _warned: set[tuple[str, str]] = field(default_factory=set)

    @property
    def hook(self) -> pluggy.HookRelay:
        """The hooks of all plugins as pluggy calls them: the first exception ends the call."""
        return self.manager.hook

    def entry(self, kind: str, name: str, where: str = "") -> Entry:
        """The component of this name.

        Args:
            kind: What it is to be (``verifier``).
            name: Full name (``math/boxed``), or the short one while it is unique.
            where: The place that asks, for the message.

        Raises:
            PluginError: If the plugin it comes with is missing, off or failed to load.
            ConfigError: If the name is misspelt or ambiguous.
        """
        if (written := files.parse(name)) is not None:
            target = files.target(written, kind, where)
            return Entry(kind, name, target, f"From {written.path}.", "")
        try:
            found = self.registry.find(kind, name)
        except ConfigError as ambiguous:
            raise ConfigError.collect(
                [replace(one, where=where) for one in ambiguous.complaints]
            ) from None
        if found is None:
            raise self.missing().component(kind, name, where)
        return found

    def missing(self) -> Any:
        """What says why something cannot be had; imported only then."""
        missing: Any = core_service("missing")
        return missing(self.registry, self.records)

    def service(self, name: str) -> Any:
        """Import a part of the core that stands outside the kernel.

        Args:
            name: Its registered name (``core/mirror``).

        Raises:
            PluginError: If it cannot be imported.
        """
        return self.entry("service", name).load()

    def observe(self, name: str, event: object) -> None:
        """Tell every plugin that implements an observing hook what happened.

        A plugin that raises is warned about once per hook; it stops neither the run nor the
        other plugins.

        Args:
            name: The hook, e.g. ``step_finished``.
            event: Its one argument.
        """
        for plugin, call in self._calls(name, {"event": event}):
            try:
                call()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a plugin may even call sys.exit
                if (plugin, name) not in self._warned:
                    self._warned.add((plugin, name))
                    _log.warning(
                        "plugin %s failed in %s: %s (%s); the run goes on, and later failures of "
                        "this hook are not reported",
                        plugin,
                        name,
                        loader.describe(error),
                        self._place(error, plugin),
                    )

    def ask_uri(self, uri: str, cache: Path) -> Path:
        """A local path with the content of a URI.

        Args:
            uri: E.g. ``s3://bucket/key``.
            cache: Folder the plugin may download into.

        Raises:
            PluginError: If no plugin opens such URIs, or the one that does failed.
        """
        answer = self._ask("open_uri", {"uri": uri, "cache": cache}, Path)
        if answer is None:
            raise self.missing().uri(uri)
        return answer

    def ask_store(self, uri: str) -> Store:
        """The store at a URI.

        Args:
            uri: E.g. ``s3://bucket/runs``.

        Raises:
            PluginError: If no plugin opens such URIs, or the one that does failed.
        """
        from rlvr_core.api import Store  # which most runs never need

        answer = self._ask("open_store", {"uri": uri}, Store)  # type: ignore[type-abstract]
        if answer is None:
            raise self.missing().uri(uri)
        return answer

    def locate_model(self, reference: str) -> Path | None:
        """The folder of a model that a plugin makes or fetches; None if no plugin knows it.

        Raises:
            RlvrError: If the one that knows it cannot make or fetch it.
        """
        return self._ask("locate_model", {"reference": reference}, Path)

    def locate_run(self, env: Mapping[str, str] = os.environ) -> Path | None:
        """The folder runs belong in on a managed machine; None if this is not one.

        Raises:
            PluginError: If a plugin failed to say.
        """
        return self._ask("locate_run", {"env": env}, Path)

    def examine(self) -> list[tuple[str, Finding]]:
        """What each plugin finds on this machine, with the plugin's name.

        A plugin that cannot say is a finding of its own.
        """
        findings: list[tuple[str, Finding]] = []
        for plugin, call in self._calls("examine", {}):
            try:
                answer = call()
                if not isinstance(answer, list | tuple):
                    raise TypeError(f"examine returned {type(answer).__name__}, not a list")
                findings += [(plugin, finding) for finding in answer]
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a plugin may even call sys.exit
                said = f"failed: {loader.describe(error)} ({self._place(error, plugin)})"
                findings.append((plugin, Finding("examine", said)))
        return findings

    def options_of(self, name: str, where: str) -> type[ComponentConfig]:
        """The ``Config`` of a plugin: what it takes under ``plugins``.

        Args:
            name: The plugin's name.
            where: Where the user wrote it.

        Raises:
            ConfigError: If the name is misspelt, or the plugin takes no options.
            PluginError: If the plugin is missing, off or failed to load, or its ``Config`` is none.
        """
        plugin = self.manager.get_plugin(name)
        if plugin is None:
            raise self.missing().options(name, where)
        config = inspect.getattr_static(plugin, "Config", None)
        heard = any(impl.plugin is plugin for impl in self.manager.hook.configure.get_hookimpls())
        if config is None or not heard:
            raise ConfigError(
                f"plugin '{name}' takes no options of its own",
                where=where,
                remedy=f"options of its components go under 'with'; see: rlvr plugins show {name}",
            )
        if not (isinstance(config, type) and issubclass(config, ComponentConfig)):
            raise PluginError(
                f"Config of plugin '{name}' is no subclass of rlvr_core.api.ComponentConfig",
                where=where,
                remedy=f"report it to the author of {name}",
            )
        return config

    def configure(self, options: Mapping[str, ComponentConfig]) -> None:
        """Give plugins the options of a run.

        Args:
            options: By the plugin's name.

        Raises:
            PluginError: If a plugin refuses them.
        """
        for name, config in options.items():
            for plugin, call in self._calls("configure", {"options": config}):
                if plugin == name:
                    self._told(plugin, "configure", call)

    def check_data(self, data: RunData) -> list[DataReport]:
        """What each plugin that looks at a run's data has found.

        Raises:
            ConfigError: If a plugin refuses the data.
            PluginError: If a plugin failed.
        """
        return list(self._answers("check_data", {"data": data}, DataReport))

    def record(self, name: str) -> PluginRecord | None:
        """The record of the plugin, or else of the distribution, of this name."""
        named = [record for record in self.records if record.name == name]
        named += [record for record in self.records if record.distribution == name]
        return named[0] if named else None

    def _ask(self, name: str, arguments: Mapping[str, object], wanted: type[T]) -> T | None:
        """The first answer of a plugin that is not None."""
        return next(self._answers(name, arguments, wanted), None)

    def _answers(self, name: str, arguments: Mapping[str, object], wanted: type[T]) -> Iterator[T]:
        """Each answer of a plugin that is not None.

        Raises:
            PluginError: If a plugin failed, or answered with something else than ``wanted``.
        """
        for plugin, call in self._calls(name, arguments):
            answer = self._told(plugin, name, call)
            if isinstance(answer, wanted):
                yield answer
            elif answer is not None:
                raise PluginError(
                    f"plugin {plugin} answered {name} with a {type(answer).__name__}, not a "
                    f"{wanted.__name__}",
                    remedy=f"report it to the author of {plugin}",
                )

    def _told(self, plugin: str, name: str, call: Callable[[], object]) -> object:
        """What a plugin's hook gives; its failure is an error named as the plugin's."""
        try:
            return call()
        except (RlvrError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a plugin may even call sys.exit
            raise PluginError(
                f"plugin {plugin} failed in {name}: {loader.describe(error)}",
                where=str(self._place(error, plugin)),
                remedy=f"details: rlvr plugins show {plugin}",
            ) from error

    def _calls(
        self, name: str, arguments: Mapping[str, object]
    ) -> Iterator[tuple[str, Callable[[], object]]]:
        """Each plugin that implements a hook, by name, with the call of its hook."""
        impls = getattr(self.manager.hook, name).get_hookimpls()
        for impl in sorted(impls, key=lambda impl: str(impl.plugin_name)):
            given = {key: arguments[key] for key in impl.argnames}
            yield impl.plugin_name, partial(impl.function, **given)

    def _place(self, error: BaseException, plugin: str) -> Place:
        """The line of the plugin an error came through; its module when there is none."""
        record = next(record for record in self.records if record.name == plugin)
        place = discovery.of_error(error, record.module.partition(".")[0])
        return Place(record.file, 0) if place is discovery.NOWHERE else place


def load_host(env: Mapping[str, str] = os.environ) -> Host:
    """Load the core and every installed plugin.

    Args:
        env: ``RLVR_PLUGINS`` and ``RLVR_PLUGINS_OFF`` choose plugins; see
            ``discovery.find_plugins``.

    Returns:
        A host with one record for each plugin. No plugin can make this raise.
    """
    plugins = [discovery.CORE_PLUGIN, *discovery.find_plugins(env)]
    registry, manager = Registry(), loader.new_manager()
    records = tuple(loader.load(plugin, plugins, registry, manager) for plugin in plugins)
    return Host(registry, records, manager)
