"""Looks up every component a configuration names and checks its options.

The result has full names and every default filled in, and can itself be run as a configuration.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic_core import PydanticSerializationError

from rlvr_core.api import (
    ComponentConfig,
    ConfigError,
    LossTraits,
    PluginError,
    Problem,
    RlvrError,
    config_class,
)
from rlvr_core.config.dialect import write
from rlvr_core.config.guards import ALL, default_guards, lay_over
from rlvr_core.config.layers import escape, options_to_node
from rlvr_core.config.load import Draft, LoadedConfig, checked, read_draft
from rlvr_core.config.model import ComponentRef, RunConfig
from rlvr_core.config.rules import Rules, rule_warnings, unknown_names
from rlvr_core.config.tree import AUTO, Loc, Mark, Node, made, numbered, pattern, places
from rlvr_core.plugins import files
from rlvr_core.plugins.host import Host
from rlvr_core.plugins.registry import Entry, kind_words

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Component:
    """A component that was found, with valid options.

    Attributes:
        entry: Its registry entry.
        cls: Its class.
        config: Its validated options.
    """

    entry: Entry
    cls: type[Any]
    config: ComponentConfig

    def make(self, where: str = "") -> Any:
        """Construct the component.

        Args:
            where: Where the user wrote it, for messages.

        Raises:
            PluginError: If the constructor of a plugin's component fails.
        """
        with self.entry.named("cannot be made with its options", where):
            return self.cls(self.config)

    def traits(self, kind: type[T]) -> T:
        """Return the component's traits, an instance of the dataclass of its kind.

        Raises:
            PluginError: If it declares none.
        """
        component = self.make()
        try:
            traits = component.traits
        except AttributeError:
            traits = None
        if isinstance(traits, kind):
            return traits
        raise PluginError(
            f"{self.entry.owner} has no traits",
            where=str(self.entry.registered),
            remedy=f"give {self.cls.__qualname__} an attribute 'traits', of "
            f"rlvr_core.api.{kind.__name__}",
        )


@dataclass(frozen=True, slots=True)
class Resolved:
    """A configuration ready to run.

    Attributes:
        config: The configuration with full component names and all options of each component in
            ``with_``.
        loaded: The configuration as loaded.
        host: The host that resolved the components.
        components: Each component by its location.
        plugins: Options of plugins, by plugin name.
        reward_names: Name of each reward, in order: that of its verifier, or ``auto``; repeated
            names get ``#2``, ``#3`` and so on.
        warnings: Settings that are allowed but probably a mistake.
    """

    config: RunConfig
    loaded: LoadedConfig
    host: Host
    components: Mapping[Loc, Component]
    plugins: Mapping[str, ComponentConfig]
    reward_names: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def where(self, loc: Loc) -> str:
        """Return ``file:line (key.path)`` of a value."""
        return self.loaded.where(loc)

    def make(self, loc: Loc) -> Any:
        """Construct the component that the configuration names at ``loc``.

        Raises:
            PluginError: If the constructor of a plugin's component fails.
        """
        return self.components[loc].make(self.where((*loc, "use")))

    def build(self, kind: str, ref: ComponentRef) -> Any:
        """Construct a component that was chosen later, for example by ``auto``."""
        return build(self.host, kind, ref)

    def sources(self, problems: Iterable[Problem]) -> dict[str, str]:
        """Map each component named by file or module, as named, to the target it is imported from.

        Args:
            problems: The run's problems, whose verifier and environment may be named by file or
                module too.
        """
        entries = [component.entry for component in self.components.values()]
        named: set[tuple[str, str]] = set()
        for problem in problems:
            named.add(("verifier", problem.verifier))
            named.add(("environment", problem.environment or ""))
        entries += [self.host.entry(kind, name) for kind, name in named if files.parse(name)]
        return {entry.name: entry.target for entry in entries if not entry.plugin}

    def advantage(self) -> ComponentRef | None:
        """Return the advantage estimator, configured or the losses' own; None if unused."""
        losses = [self.components[loc] for loc in self.config.losses]
        names = [loss.traits(LossTraits).advantage for loss in losses]
        known = [name for name in names if name is not None]
        if not known or self.config.advantage.use != "auto":
            return self.config.advantage if known else None
        return ComponentRef(use=known[0])

    def dump(self) -> dict[str, Any]:
        """Return the whole configuration as plain data that can be run again.

        A value from an environment variable named like a secret appears as the reference that was
        written, never as its content.
        """
        data: dict[str, Any] = self.config.model_dump(mode="json", by_alias=True)
        for loc, component in self.components.items():
            _at(data, loc)["with"] = _plain(component.config)
        data["plugins"] = {name: _plain(options) for name, options in self.plugins.items()}
        data = _map_text(data)
        for loc, written in self.loaded.draft.secrets.items():
            _replace(data, loc, written)
        return data

    def yaml(self) -> str:
        """Return ``dump`` as YAML."""
        return write(self.dump())


def resolve(loaded: LoadedConfig, host: Host) -> Resolved:
    """Look up and validate every component of a loaded configuration.

    Args:
        loaded: The configuration.
        host: The loaded plugins.

    Raises:
        ConfigError: If names or options are wrong; reports all faults at once.
        PluginError: Likewise, if a plugin causes one of the faults.
    """
    return _resolve(loaded.draft, loaded.config, host)


def resolve_file(
    path: str | os.PathLike[str],
    overrides: Sequence[str],
    host: Host,
    text: str | None = None,
) -> Resolved:
    """Load and resolve in one go, reporting the faults of both together.

    Args:
        path: The YAML file.
        overrides: ``key.path=value`` options.
        host: The loaded plugins.
        text: The content, if there is no file and ``path`` is only a name for messages.

    Raises:
        ConfigError: If the file, a key, a name or an option is wrong; reports all faults at once.
        PluginError: Likewise, if a plugin causes one of the faults.
    """
    draft = read_draft(path, overrides, text)
    return _resolve(draft, None, host)


def _resolve(draft: Draft, config: RunConfig | None, host: Host) -> Resolved:
    """Resolve a draft, which is validated here if it was not before."""
    errors: list[RlvrError] = []
    try:
        config = config or draft.checked(RunConfig)
    except ConfigError as error:
        errors.append(error)
    data = draft.root.plain() if config is None else config.model_dump(by_alias=True)
    components: dict[Loc, Component] = {}
    for loc, kind, value in places(data):
        try:
            component_found = _component(host, kind, loc, value, draft.root)
        except RlvrError as error:
            errors.append(error)
        else:
            if component_found is not None:
                components[loc] = component_found
    plugins: dict[str, ComponentConfig] = {}
    for name, given in _mappings(data.get("plugins")):
        try:
            plugins[name] = plugin_options(host, name, given, draft.root)
        except RlvrError as error:
            errors.append(error)
    options = {loc: component.config for loc, component in components.items()}
    errors += unknown_names(data, options, draft.root, host)
    if config is not None:
        rules = Rules(
            config,
            components,
            draft.root,
            lambda name: find(host, "advantage", name, {}, draft.root, ()),
        )
        errors += rules.faults()
    if errors or config is None:
        raise _together(errors, draft)
    _add_default_guards(data, components, host, draft.root)
    for loc, component in components.items():
        ref = _at(data, loc)
        ref["use"] = component.entry.name
        ref["with"] = component.config.model_dump(by_alias=True, round_trip=True)
    full = RunConfig.model_validate(data)
    return Resolved(
        full,
        LoadedConfig(config, draft),
        host,
        components,
        plugins,
        _reward_names(full),
        rule_warnings(full, draft.root),
    )


def _add_default_guards(
    data: dict[str, Any], components: dict[Loc, Component], host: Host, root: Node
) -> None:
    """Write the default guards behind those that the configuration names, which keep their place.

    A resolved list is the whole list: it switches the defaults off that it does not name.
    """
    entries = data["guards"]
    known = {
        n: components["guards", n].entry.name
        for n, entry in enumerate(entries)
        if entry["use"] != ALL
    }
    for name in lay_over(entries, known, default_guards(host.registry)):
        components["guards", len(entries)] = find(host, "guard", name, {}, root, ("guards",))
        entries.append({"use": name, "with": {}, "off": False})
    if not any(entry["use"] == ALL for entry in entries):
        entries.append({"use": ALL, "with": {}, "off": True})


def _mappings(value: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the items that are mappings; the model reports the others."""
    entries = value.items() if isinstance(value, dict) else ()
    return [(str(name), given) for name, given in entries if isinstance(given, dict)]


def plugin_options(host: Host, name: str, given: Mapping[str, Any], root: Node) -> ComponentConfig:
    """Return the validated options of a plugin.

    Args:
        host: The loaded plugins.
        name: The plugin's name.
        given: Its options as written.
        root: The tree they come from, for line numbers.

    Raises:
        ConfigError: If the plugin takes no options, or these are wrong.
        PluginError: If the plugin is missing, or its validation raised.
    """
    where = root.where(("plugins", name), True)
    model = host.options_of(name, where)
    try:
        return checked(model, dict(given), root, ("plugins", name), f"plugin '{name}'")
    except (RlvrError, KeyboardInterrupt):
        raise
    except BaseException as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise PluginError(
            f"plugin '{name}' failed to check its options: {text}",
            where=where,
            remedy=f"report it to the author of {name}",
        ) from error


def _component(host: Host, kind: str, loc: Loc, value: Any, root: Node) -> Component | None:
    """Resolve the component at ``loc``; None if it is chosen later or nothing is named."""
    if isinstance(value, str):
        value = {"use": value}
    use = value.get("use") if isinstance(value, dict) else None
    options = value.get("with", {}) if isinstance(value, dict) else {}
    if not isinstance(use, str) or not isinstance(options, dict):
        return None  # the model has already reported it
    if use == ALL and kind == "guard":
        return None
    if use == "auto" and pattern(loc) in AUTO:
        if options:
            raise ConfigError(
                f"'auto' {AUTO[pattern(loc)]}, and has no options of its own",
                where=root.where((*loc, "with"), True),
                remedy="name the component whose options these are",
            )
        return None
    return find(host, kind, use, options, root, loc)


def find(
    host: Host, kind: str, use: str, options: Mapping[str, Any], root: Node, loc: Loc
) -> Component:
    """Look up a component and validate its options.

    Args:
        host: The loaded plugins.
        kind: The kind of component.
        use: Its name.
        options: Its ``with``.
        root: The tree the options come from, for line numbers.
        loc: Where in the tree the component is named.

    Raises:
        ConfigError: If the name or the options are wrong.
        PluginError: If its plugin is missing or broken.
    """
    where = root.where((*loc, "use"))
    entry = host.entry(kind, use, where)
    try:
        cls = entry.load()
        model = config_class(cls)
    except RlvrError as error:
        placed = [
            replace(c, where=c.where or where, remedy=c.remedy or (entry.help,))
            for c in error.complaints
        ]
        raise type(error).collect(placed) from error
    owner = f"{kind_words(kind)} '{entry.name}'"
    with entry.named("failed to check its options", where):
        config = checked(model, dict(options), root, (*loc, "with"), owner)
    try:
        _plain(config)
    except (PydanticSerializationError, ValueError) as error:
        raise PluginError(
            f"the options of {owner} cannot be written down: {error}",
            where=where,
            remedy=entry.help,
        ) from error
    return Component(entry, cls, config)


def _plain(config: ComponentConfig) -> dict[str, Any]:
    return config.model_dump(mode="json", by_alias=True, round_trip=True)


def build(host: Host, kind: str, ref: ComponentRef, where: str = "") -> Any:
    """Construct a component that is not part of a run's configuration.

    Args:
        host: The loaded plugins.
        kind: The kind of component.
        ref: Its name and options.
        where: The option or key that the user wrote it in, for messages (``--with``).

    Raises:
        ConfigError: If the name or the options are wrong.
        PluginError: If its plugin is missing or broken.
    """
    try:
        component = find(host, kind, ref.use, ref.with_, made({}, Mark("")), ())
    except RlvrError as error:
        placed = [
            replace(complaint, where=complaint.where or where) for complaint in error.complaints
        ]
        raise type(error).collect(placed) from error
    return component.make(where)


def parse_options(options: Sequence[str], flag: str = "--with") -> dict[str, Any]:
    """Parse a list of ``key=value`` options, each value YAML, into a component's ``with``.

    Raises:
        ConfigError: If an option cannot be read.
    """
    data: dict[str, Any] = options_to_node(options, flag).plain()
    return data


def _reward_names(config: RunConfig) -> tuple[str, ...]:
    return tuple(numbered(ref.use for ref in config.rewards))


def _together(errors: Sequence[RlvrError], draft: Draft) -> RlvrError:
    """Combine all complaints in one error; it is a ``PluginError`` if any plugin is at fault."""
    kinds: list[type[RlvrError]] = [PluginError, ConfigError]
    worst = next((kind for kind in kinds if any(isinstance(e, kind) for e in errors)), None)
    every = [complaint for error in errors for complaint in error.complaints]
    return (worst or type(errors[0])).collect(draft.hide(every))


def _at(data: Any, loc: Loc) -> Any:
    for step in loc:
        data = data[step]
    return data


def _map_text(data: Any) -> Any:
    """Escape every string in plain data, so that reading it back expands no variables."""
    if isinstance(data, dict):
        return {str(key): _map_text(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_map_text(value) for value in data]
    return escape(data) if isinstance(data, str) else data


def _replace(data: Any, loc: Loc, written: str) -> None:
    for step in loc[:-1]:
        inside = isinstance(data, dict) and step in data
        if not inside and not (isinstance(data, list) and isinstance(step, int)):
            return
        data = data[step]
    if isinstance(data, dict | list) and loc:
        data[loc[-1]] = written  # type: ignore[index]
