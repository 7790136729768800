"""Verifiers that data sources ask for by an option, looked up where the option is written.

``rewards: [{use: auto}]`` takes the verifier that each problem names. Most loaders know theirs; a
loader of the user's own files has an option for it, which is checked here like any other name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlvr_core.api.errors import RlvrError
from rlvr_core.api.protocols import ComponentConfig, Names
from rlvr_core.config.tree import Loc, Node
from rlvr_core.host.host import Host


def unknown_verifiers(
    data: Mapping[str, Any], options: Mapping[Loc, ComponentConfig], root: Node, host: Host
) -> list[RlvrError]:
    """What is wrong with the verifiers that sources ask for; nothing if no reward asks them.

    Args:
        data: The configuration as plain data, with or without other faults.
        options: Options of the components that are good, by place.
        root: The tree they come from, for lines.
        host: The plugins.
    """
    if not _asks(data.get("rewards", "auto")):
        return []
    errors: list[RlvrError] = []
    for loc, section in options.items():
        for field, name in _named(section, "verifier") if loc[:2] == ("data", "sources") else ():
            try:
                host.entry("verifier", name, root.where((*loc, "with", field)))
            except RlvrError as error:
                errors.append(error)
    return errors


def _asks(rewards: Any) -> bool:
    """Whether one of the rewards is each problem's own verifier."""
    entries = rewards if isinstance(rewards, list) else [rewards]
    return any(
        (entry.get("use") if isinstance(entry, Mapping) else entry) == "auto" for entry in entries
    )


def _named(section: ComponentConfig, kind: str) -> list[tuple[str, str]]:
    """Fields that hold the name of a component of this kind, and the names."""
    return [
        (field, str(getattr(section, field)))
        for field, info in type(section).model_fields.items()
        if Names(kind) in info.metadata and getattr(section, field) is not None
    ]
