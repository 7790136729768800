"""Finds a component by name, or says why it cannot be had.

The hints come in this order: its plugin failed, its plugin is not installed, the name is misspelt,
where to see the names there are.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from rlvr_core.api import ConfigError, PluginError, RlvrError
from rlvr_core.host import files
from rlvr_core.host.discovery import FIRST_PARTY
from rlvr_core.host.loader import PluginRecord
from rlvr_core.host.registry import Entry, Registry, plural, spoken


def entry(
    registry: Registry, records: Sequence[PluginRecord], kind: str, name: str, where: str
) -> Entry:
    """The component of this kind and name; see ``Host.entry``."""
    if (written := files.parse(name)) is not None:
        return Entry(kind, name, files.target(written, kind, where), f"From {written.path}.", "")
    try:
        found = registry.find(kind, name)
    except ConfigError as ambiguous:
        raise ConfigError(
            ambiguous.complaints[0].what, where=where, remedy=ambiguous.complaints[0].remedy
        ) from None
    if found is not None:
        return found
    namespace, slash, _ = name.partition("/")
    owners = [record for record in records if slash and record.name == namespace]
    if any(record.status in ("failed", "off") for record in owners):
        raise PluginError(
            f"{spoken(kind)} '{name}' is unavailable",
            where=where,
            remedy=[line for record in owners for line in unavailable(record)],
        )
    list_them = f"list them: rlvr list {plural(kind)}"
    near = registry.near(kind, name)
    hints = [*_other_kinds(registry, kind, name), *_did_you_mean(near), list_them]
    unknown = f"unknown {spoken(kind)} '{name}'"
    if not slash:
        broken = [record for record in records if record.status == "failed"]
        maybe = [_maybe(record) for record in broken]
        error = PluginError if broken and not near else ConfigError
        raise error(unknown, where=where, remedy=[*maybe, *hints])
    if owners:
        raise ConfigError(unknown, where=where, remedy=hints)
    if namespace in FIRST_PARTY:
        missing = _not_installed(FIRST_PARTY[namespace])
        raise PluginError(unknown, where=where, remedy=[missing, list_them])
    raise _no_such_plugin(records, namespace, unknown, where, hints)


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


def missing_plugin(records: Sequence[PluginRecord], name: str) -> RlvrError | None:
    """The error for something only this plugin could give; None if the plugin is loaded."""
    owners = [record for record in records if record.name == name]
    if any(record.status in ("ok", "warned") for record in owners):
        return None
    if owners:
        lines = [line for record in owners for line in unavailable(record)]
        return PluginError(f"plugin '{name}' is unavailable", remedy=lines)
    if name in FIRST_PARTY:
        return PluginError(f"there is no plugin '{name}'", remedy=_not_installed(FIRST_PARTY[name]))
    return None


def no_plugin(records: Sequence[PluginRecord], name: str, where: str) -> RlvrError:
    """The error for options of a plugin that is not loaded."""
    missing = missing_plugin(records, name)
    if missing is not None:
        return type(missing)(
            missing.complaints[0].what, where=where, remedy=missing.complaints[0].remedy
        )
    installed = [record.name for record in records]
    near = difflib.get_close_matches(name.lower(), [*installed, *FIRST_PARTY], n=3)
    hints = [*_did_you_mean(near), "see what is installed: rlvr plugins list"]
    return ConfigError(f"no installed plugin is called '{name}'", where=where, remedy=hints)


def unknown_uri(records: Sequence[PluginRecord], uri: str) -> PluginError:
    """The error for a URI that no plugin opens."""
    scheme = uri.partition("://")[0]
    lines = []
    if scheme == "s3":
        sagemaker = missing_plugin(records, "sagemaker")
        lines = list(sagemaker.complaints[0].remedy) if sagemaker else []
    lines += [_maybe(record) for record in records if record.status == "failed"]
    lines.append("see what is installed: rlvr plugins list")
    return PluginError(
        f"no plugin opens '{scheme}://', as in {uri}", remedy=list(dict.fromkeys(lines))
    )


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
    return [f"'{other.name}' is a {spoken(str(other.kind))}" for other in others]
