"""The host: looks components up by name and calls the hooks of plugins."""

from __future__ import annotations

import difflib
import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

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
from rlvr_core.plugins import discovery, files, loader
from rlvr_core.plugins.discovery import Place
from rlvr_core.plugins.loader import PluginRecord
from rlvr_core.plugins.registry import Entry, Registry

if TYPE_CHECKING:
    from rlvr_core.api import Store
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.plugins.missing import Missing

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class Host:
    """The loaded plugins; created by ``load_host``.

    Attributes:
        registry: What the plugins registered.
        records: One record per installed plugin, the core first.
        manager: The pluggy manager the plugins are registered with.
    """

    registry: Registry
    records: tuple[PluginRecord, ...]
    manager: pluggy.PluginManager
    _warned: set[tuple[str, str]] = field(default_factory=set)

    @property
    def hook(self) -> pluggy.HookRelay:
        """The hooks of all plugins, called as pluggy does: the first exception ends the call."""
        return self.manager.hook

    def entry(self, kind: str, name: str, where: str = "") -> Entry:
        """Look up a component.

        Args:
            kind: The kind of component, such as ``verifier``.
            name: Full name (``math/boxed``), or the short name if it is unique.
            where: Where the name is used, for the message.

        Raises:
            PluginError: If the plugin it comes with is missing, off or failed to load.
            ConfigError: If the name is misspelt or ambiguous.
        """
        if (written := files.parse(name)) is not None:
            target = files.target(written, kind, where)
            return Entry(kind, name, target, f"From {written.path}.", "")
        try:
            registered = self.registry.find(kind, name)
        except ConfigError as ambiguous:
            raise ConfigError.collect(
                [replace(complaint, where=where) for complaint in ambiguous.complaints]
            ) from None
        if registered is None:
            raise self.missing().component(kind, name, where)
        return registered

    def missing(self) -> Missing:
        """Explains why a component is unavailable; imported only when needed."""
        from rlvr_core.plugins.missing import Missing

        return Missing(self.registry, self.records)

    def observe(self, name: str, event: object) -> None:
        """Call an observing hook of every plugin that implements it.

        A plugin that raises is warned about once per hook; its exception stops neither the run nor
        the other plugins.

        Args:
            name: The hook, e.g. ``step_finished``.
            event: The hook's only argument.
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
        """Return a local path to the content of a URI.

        Args:
            uri: E.g. ``s3://bucket/key``.
            cache: Folder the plugin may download into.

        Raises:
            PluginError: If no plugin opens such URIs, or the plugin that does failed.
        """
        answer = self._ask("open_uri", {"uri": uri, "cache": cache}, Path)
        if answer is None:
            raise self.missing().uri(uri)
        return answer

    def ask_store(self, uri: str) -> Store:
        """Open the store at a URI.

        Args:
            uri: E.g. ``s3://bucket/runs``.

        Raises:
            PluginError: If no plugin opens such URIs, or the plugin that does failed.
        """
        from rlvr_core.api import Store  # most runs never need it

        answer = self._ask("open_store", {"uri": uri}, Store)
        if answer is None:
            raise self.missing().uri(uri)
        return answer

    def locate_model(self, reference: str) -> Path | None:
        """Return the folder of a model that a plugin creates or fetches; else None.

        Raises:
            RlvrError: If the plugin that knows it cannot create or fetch it.
        """
        return self._ask("locate_model", {"reference": reference}, Path)

    def choose_checkpointing(self, resolved: Resolved, model_path: str) -> DataReport | None:
        """Return which layers to compute again, as a plugin plans it; None if none does.

        Raises:
            PluginError: If a plugin's hook failed.
        """
        arguments = {"resolved": resolved, "model_path": model_path}
        return self._ask("choose_checkpointing", arguments, DataReport)

    def provide(
        self, hook: str, cls: type[T], what: str, plugin: str, arguments: Mapping[str, object]
    ) -> T:
        """Return the answer of the plugin that has an optional part of a run.

        Args:
            hook: The asking hook.
            cls: Type of its answer.
            what: What the configuration asks for, for the message.
            plugin: The first-party plugin that it comes with.
            arguments: The hook's arguments.

        Raises:
            PluginError: If that plugin is missing, or failed.
        """
        answer = self._ask(hook, arguments, cls)
        if answer is None:
            raise self.missing().part(what, plugin)
        return answer

    def locate_run(self, env: Mapping[str, str] = os.environ) -> Path | None:
        """Return the folder that run folders belong in on a managed machine; None elsewhere.

        Raises:
            PluginError: If a plugin's hook failed.
        """
        return self._ask("locate_run", {"env": env}, Path)

    def examine(self) -> list[tuple[str, Finding]]:
        """Collect the findings of each plugin about this machine, each with the plugin's name.

        A plugin whose check fails is reported as a finding.
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
                message = f"failed: {loader.describe(error)} ({self._place(error, plugin)})"
                findings.append((plugin, Finding("examine", "fail", message)))
        return findings

    def options_of(self, name: str, where: str) -> type[ComponentConfig]:
        """Return the ``Config`` of a plugin: the options it accepts under ``plugins``.

        Args:
            name: The plugin's name.
            where: Where the user wrote the name.

        Raises:
            ConfigError: If the name is misspelt, or the plugin takes no options.
            PluginError: If the plugin is missing, off or failed to load, or its ``Config`` is not a
                config class.
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
        """Pass each plugin its options for a run.

        Args:
            options: Options by plugin name.

        Raises:
            PluginError: If a plugin refuses them.
        """
        for name, config in options.items():
            for plugin, call in self._calls("configure", {"options": config}):
                if plugin == name:
                    self._call_hook(plugin, "configure", call)

    def check_data(self, data: RunData) -> list[DataReport]:
        """Collect the reports of the plugins that check a run's data.

        Raises:
            ConfigError: If a plugin refuses the data.
            PluginError: If a plugin failed.
        """
        return list(self._answers("check_data", {"data": data}, DataReport))

    def record(self, name: str) -> PluginRecord | None:
        """Return a plugin's record by the name of the plugin, else of its distribution."""
        named = [record for record in self.records if record.name == name]
        named += [record for record in self.records if record.distribution == name]
        return named[0] if named else None

    def no_plugin(self, name: str, *remedy: str) -> PluginError:
        """Return the error for a name that is no plugin's, with what was probably meant."""
        lines = ["see what is installed: rlvr plugins list", *remedy]
        close = difflib.get_close_matches(
            name.lower(), [record.name for record in self.records], n=3
        )
        if close:
            lines.insert(0, f"did you mean: {', '.join(close)}?")
        if name in discovery.FIRST_PARTY:
            lines.insert(0, f"pip install {discovery.FIRST_PARTY[name]}")
        return PluginError(f"there is no plugin '{name}'", remedy=lines)

    def plugin_versions(self) -> dict[str, str]:
        """Return the version of each loaded distribution of plugins."""
        versions = ((record.distribution, record.version) for record in self.records)
        return {name: version for name, version in versions if name and version}

    def _ask(self, name: str, arguments: Mapping[str, object], cls: type[T]) -> T | None:
        """Return the first answer of any plugin that is not None."""
        return next(self._answers(name, arguments, cls), None)

    def _answers(self, name: str, arguments: Mapping[str, object], cls: type[T]) -> Iterator[T]:
        """Yield each plugin's answer that is not None.

        Raises:
            PluginError: If a plugin failed, or its answer is not a ``cls``.
        """
        for plugin, call in self._calls(name, arguments):
            answer = self._call_hook(plugin, name, call)
            if isinstance(answer, cls):
                yield answer
            elif answer is not None:
                raise PluginError(
                    f"plugin {plugin} answered {name} with a {type(answer).__name__}, not a "
                    f"{cls.__name__}",
                    remedy=f"report it to the author of {plugin}",
                )

    def _call_hook(self, plugin: str, name: str, call: Callable[[], object]) -> object:
        """Call a plugin's hook; an exception becomes an error that names the plugin."""
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
        """Yield, for each plugin that implements a hook, its name and a call of the hook."""
        impls = getattr(self.manager.hook, name).get_hookimpls()
        for impl in sorted(impls, key=lambda impl: str(impl.plugin_name)):
            accepted = {key: arguments[key] for key in impl.argnames}
            yield impl.plugin_name, partial(impl.function, **accepted)

    def _place(self, error: BaseException, plugin: str) -> Place:
        """Return the line of the plugin that an error passed through; else its module."""
        record = next(record for record in self.records if record.name == plugin)
        place = discovery.of_error(error, record.module.partition(".")[0])
        return Place(record.file, 0) if place is discovery.NOWHERE else place


def load_host(env: Mapping[str, str] = os.environ) -> Host:
    """Load the core and every installed plugin.

    Args:
        env: ``RLVR_PLUGINS`` and ``RLVR_PLUGINS_OFF`` choose plugins; see
            ``discovery.find_plugins``.

    Returns:
        A host with one record per plugin. A faulty plugin never makes this raise.
    """
    plugins = [discovery.CORE_PLUGIN, *discovery.find_plugins(env)]
    registry, manager = Registry(), loader.new_manager()
    records = tuple(loader.load(plugin, plugins, registry, manager) for plugin in plugins)
    return Host(registry, records, manager)
