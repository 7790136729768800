"""Reads a configuration with several faults: records and removes each, and continues."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlvr_core.api import Complaint, ComponentConfig, RlvrError
from rlvr_core.api.services import (
    Host,
    Loc,
    Resolved,
    RunConfig,
    read_draft,
    resolve_file,
    write,
)
from rlvr_core.builtin.doctor.report import Report

MAX_FAULTS = 30
"""Maximum number of faulty keys to remove."""
_PLACE = re.compile(r"\(([^()\s]+)\)\s*$")
_STEP = re.compile(r"[^.\[\]]+")


@dataclass
class Draft:
    """A configuration from which faulty keys were removed.

    Attributes:
        path: Its file.
        data: Its values as plain data.
        options: ``KEY=VALUE`` options on top.
        removed: The removed keys.
    """

    path: Path
    data: dict[str, Any]
    options: tuple[str, ...] = ()
    removed: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, options: Sequence[str]) -> Draft:
        """Read a file.

        Raises:
            ConfigError: If it cannot be read at all.
        """
        return cls(path, read_draft(path, options).root.plain())

    def resolve(self, host: Host, more: Sequence[str] = ()) -> Resolved:
        """Look up its components.

        Raises:
            ConfigError: If something in it is wrong.
            PluginError: If a plugin is missing or broken.
        """
        return resolve_file(self.path, [*self.options, *more], host, write(self.data))

    def mend(self, error: RlvrError) -> bool:
        """Remove the keys that an error names; return whether any was removed."""
        before = len(self.removed)
        for complaint in error.complaints:
            loc = place_of(complaint, self.data)
            if loc is not None and len(self.removed) < MAX_FAULTS:
                self._remove(loc, complaint)
        return len(self.removed) > before

    def _remove(self, loc: Loc, complaint: Complaint) -> None:
        parent: Any = self.data
        for step in loc[:-1]:
            parent = parent[step]
        value = parent[loc[-1]]
        if len(loc) == 1 and isinstance(value, dict):
            # a rule about a whole section: remove the optional keys that it mentions
            fields = _fields(loc)
            named = [
                key
                for key in value
                if re.search(rf"\b{re.escape(key)}\b", complaint.what)
                and key in fields
                and not fields[key].is_required()
            ]
            for key in named:
                del value[key]
                self.removed.append(f"{loc[0]}.{key}")
            return
        if loc in (("model",), ("data",), ("train",), ("model", "path"), ("train", "steps")):
            return
        if isinstance(parent, list) and len(parent) == 1:
            return
        del parent[loc[-1]]
        self.removed.append(".".join(map(str, loc)))


def _fields(loc: Loc) -> dict[str, Any]:
    info = RunConfig.model_fields.get(str(loc[0]))
    section: Any = None if info is None else info.annotation
    is_model = isinstance(section, type) and issubclass(section, ComponentConfig)
    return dict(section.model_fields) if is_model else {}


def place_of(complaint: Complaint, data: dict[str, Any]) -> Loc | None:
    """Return the configuration key that a complaint points to; None if it is not set."""
    found = _PLACE.search(complaint.where)
    text = found[1] if found else complaint.where
    loc: list[str | int] = []
    node: Any = data
    for step in _STEP.findall(text):
        if isinstance(node, list) and step.isdigit() and int(step) < len(node):
            loc.append(int(step))
        elif isinstance(node, dict) and step in node:
            loc.append(step)
        else:
            break
        node = node[loc[-1]]
    whole = len(loc) == len(_STEP.findall(text)) and loc
    return tuple(loc) if whole else None


def resolve_leniently(draft: Draft, host: Host, report: Report) -> Resolved | None:
    """Resolve a draft; faults are recorded and their keys removed until the rest is valid.

    Returns:
        The valid part of the configuration; None if it cannot be resolved at all.
    """
    while True:
        try:
            resolved = draft.resolve(host)
        except RlvrError as error:
            report.refusal("config", "Is the configuration accepted?", error)
            if not draft.mend(error):
                return None
        else:
            return resolved
