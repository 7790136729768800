"""Components that are named by an option of another component, looked up where it is written.

``rewards: [{use: auto}]`` takes the verifier that each problem names. Most loaders know theirs; a
loader of the user's own files has an option for it, which is checked here like any other name. So
is the tool format of an environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlvr_core.api import ComponentConfig, Names, RlvrError
from rlvr_core.config.tree import Loc, Node
from rlvr_core.host.host import Host


def unknown_names(
    data: Mapping[str, Any], options: Mapping[Loc, ComponentConfig], root: Node, host: Host
) -> list[RlvrError]:
    """What is wrong with names that options hold.

    Verifiers of data sources count only if a reward asks for each problem's own.

    Args:
        data: The configuration as plain data, with or without other faults.
        options: Options of the components that are good, by place.
        root: The tree they come from, for lines.
        host: The plugins.
    """
    errors: list[RlvrError] = []
    own_verifiers = _asks(data.get("rewards", "auto"))
    for loc, section in options.items():
        named = [("tool_format", *one) for one in _named(section, "tool_format")]
        if own_verifiers and loc[:2] == ("data", "sources"):
            named += [("verifier", *one) for one in _named(section, "verifier")]
        for kind, field, name in named:
            try:
                host.entry(kind, name, root.where((*loc, "with", field)))
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
