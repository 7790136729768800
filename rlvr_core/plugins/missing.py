"""Why a component, a plugin or a URI cannot be had, and what to do.

The hints come in this order: its plugin failed, its plugin is not installed, the name is misspelt,
where to see the names there are.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_core.api import ConfigError, PluginError, RlvrError
from rlvr_core.api.problems import NO_VERIFIER
from rlvr_core.plugins.first_party import COMPONENTS, FIRST_PARTY
from rlvr_core.plugins.loader import PluginRecord
from rlvr_core.plugins.registry import Registry, kind_words, plural


@dataclass(frozen=True, slots=True)
class Missing:
    """Makes the errors of a host's look-ups.

    Attributes:
        registry: What the plugins registered.
        records: What became of each installed plugin.
    """

    registry: Registry
    records: Sequence[PluginRecord]

    def component(self, kind: str, name: str, where: str) -> RlvrError:
        """The error for a name that is not registered.

        Args:
            kind: What it was to be.
            name: The name.
            where: Where the user wrote it.
        """
        if kind == "verifier" and name == NO_VERIFIER:
            return _no_verifier(where)
        registry, records = self.registry, self.records
        namespace, slash, _ = name.partition("/")
        owners = [record for record in records if slash and record.name == namespace]
        if any(record.status in ("failed", "off") for record in owners):
            return PluginError(
                f"{kind_words(kind)} '{name}' is unavailable",
                where=where,
                remedy=[line for record in owners for line in unavailable(record)],
            )
        list_them = f"list them: rlvr list {plural(kind)}"
        leaf = name.removeprefix("core/")  # it may have moved out of the core
        plugin = "" if "/" in leaf else _plugin_of(kind, leaf)
        if plugin and (error := self.plugin(plugin)) is not None:
            remedy = [f"it is {plugin}/{leaf}", *error.complaints[0].remedy]
            return PluginError(f"unknown {kind_words(kind)} '{name}'", where=where, remedy=remedy)
        near = _near(registry, kind, name)
        hints = [*_other_kinds(registry, kind, name), *_did_you_mean(near), list_them]
        unknown = f"unknown {kind_words(kind)} '{name}'"
        if not slash:
            broken = [record for record in records if record.status == "failed"]
            maybe = [_maybe(record) for record in broken]
            cls = PluginError if broken and not near else ConfigError
            return cls(unknown, where=where, remedy=[*maybe, *hints])
        if owners:
            return ConfigError(unknown, where=where, remedy=hints)
        if namespace in FIRST_PARTY:
            missing = _not_installed(FIRST_PARTY[namespace])
            return PluginError(unknown, where=where, remedy=[missing, list_them])
        return _no_such_plugin(records, namespace, unknown, where, hints)

    def plugin(self, name: str) -> RlvrError | None:
        """The error for something only this plugin could give; None if the plugin is loaded."""
        owners = [record for record in self.records if record.name == name]
        if any(record.status in ("ok", "warned") for record in owners):
            return None
        if owners:
            lines = [line for record in owners for line in unavailable(record)]
            return PluginError(f"plugin '{name}' is unavailable", remedy=lines)
        if name in FIRST_PARTY:
            remedy = _not_installed(FIRST_PARTY[name])
            return PluginError(f"there is no plugin '{name}'", remedy=remedy)
        return None

    def part(self, what: str, plugin: str) -> RlvrError:
        """The error for a part of a run that comes with a first-party plugin.

        Args:
            what: What the configuration asks for.
            plugin: The plugin's name.
        """
        error = self.plugin(plugin)
        remedy = error.complaints[0].remedy if error else _not_installed(FIRST_PARTY[plugin])
        return PluginError(f"{what} needs plugin '{plugin}'", remedy=remedy)

    def options(self, name: str, where: str) -> RlvrError:
        """The error for options of a plugin that is not loaded."""
        if (missing := self.plugin(name)) is not None:
            [complaint] = missing.complaints
            return type(missing)(complaint.what, where=where, remedy=complaint.remedy)
        installed = [record.name for record in self.records]
        near = difflib.get_close_matches(name.lower(), [*installed, *FIRST_PARTY], n=3)
        hints = [*_did_you_mean(near), "see what is installed: rlvr plugins list"]
        return ConfigError(f"no installed plugin is called '{name}'", where=where, remedy=hints)

    def uri(self, uri: str) -> PluginError:
        """The error for a URI that no plugin opens."""
        scheme = uri.partition("://")[0]
        lines = []
        if scheme == "s3":
            sagemaker = self.plugin("sagemaker")
            lines = list(sagemaker.complaints[0].remedy) if sagemaker else []
        lines += [_maybe(record) for record in self.records if record.status == "failed"]
        lines.append("see what is installed: rlvr plugins list")
        return PluginError(
            f"no plugin opens '{scheme}://', as in {uri}", remedy=list(dict.fromkeys(lines))
        )


def _plugin_of(kind: str, leaf: str) -> str:
    """The first-party plugin that has a component of this short name; empty if none has."""
    owners = COMPONENTS.get(kind, {})
    return next((plugin for plugin, leaves in owners.items() if leaf in leaves), "")


def _no_verifier(where: str) -> ConfigError:
    return ConfigError(
        "nothing says who judges: these problems name no verifier of their own",
        where=where,
        remedy=[
            "name one for all problems in the config: rewards: [{use: math/answer}]",
            "or one for these as an option of the data set: verifier: math/answer",
            "a function of yours will do as well: ./my_reward.py:correct",
            "rlvr data check takes one by --verifier",
            "list them: rlvr list verifiers",
        ],
    )


def unavailable(record: PluginRecord) -> list[str]:
    """Why nothing of this plugin can be used, and what to do."""
    plugin = f"plugin {record.distribution} {record.version}"
    problem = record.problems[0]
    if record.status == "off":
        return [f"{plugin} is {problem.message}"]
    more = f", and {len(record.problems) - 1} more" if len(record.problems) > 1 else ""
    place = f" ({problem.place})" if problem.place.file else ""
    return [
        f"{plugin} is installed but failed to load: {problem.message}{place}{more}",
        *problem.remedy,
        f"details: rlvr plugins show {record.name}",
    ]


def _no_such_plugin(
    records: Sequence[PluginRecord], namespace: str, unknown: str, where: str, hints: list[str]
) -> RlvrError:
    """The namespace belongs to nobody we know: misspelt, or somebody else's plugin."""
    installed = [record.name for record in records]
    names = [*installed, *FIRST_PARTY]
    close = difflib.get_close_matches(namespace.lower(), names, n=1, cutoff=0.6)
    nobody = f"no installed plugin is called '{namespace}'"
    if close and close[0] not in installed:
        nobody += f"; '{close[0]}' would come with {FIRST_PARTY[close[0]]}, which is not installed"
    error = ConfigError if close else PluginError
    return error(unknown, where=where, remedy=[nobody, *hints])


def _not_installed(distribution: str) -> str:
    return f"it comes with {distribution}, which is not installed: pip install {distribution}"


def _maybe(record: PluginRecord) -> str:
    return (
        f"plugin {record.distribution} {record.version} failed to load and may have it: "
        f"rlvr plugins show {record.name}"
    )


def _did_you_mean(names: Sequence[str]) -> list[str]:
    return [f"did you mean: {', '.join(names)}?"] if names else []


def _other_kinds(registry: Registry, kind: str, name: str) -> list[str]:
    """Say so when the name is that of something else, as of a dataset put where a loss goes."""
    others = [
        other
        for other in registry.entries.values()
        if other.kind != kind and name in (other.name, other.leaf)
    ]
    return [f"'{other.name}' is a {kind_words(str(other.kind))}" for other in others]


def _near(registry: Registry, kind: str, name: str) -> list[str]:
    """Up to three full names that look like this one."""
    full = [entry.name for entry in registry.of(kind)]
    leaves: dict[str, list[str]] = {}
    for entry in registry.of(kind):
        leaves.setdefault(entry.leaf, []).append(entry.name)
    word = name.lower()
    short = word.rpartition("/")[2]
    close = [*leaves.get(short, ()), *difflib.get_close_matches(word, full, n=3, cutoff=0.6)]
    for leaf in difflib.get_close_matches(short, leaves, n=3, cutoff=0.6):
        close += leaves[leaf]
    return list(dict.fromkeys(close))[:3]
