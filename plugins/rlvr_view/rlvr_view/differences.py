"""Compares the records of two runs, part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_core.api import Json
from rlvr_core.record.provenance.compare import Difference, differences
from rlvr_core.record.view import RunView

PARTS = (
    "config",
    "code",
    "verifiers",
    "data",
    "prompts",
    "model",
    "tokenizer",
    "versions",
    "machine",
    "threads",
    "environment",
)
_IDENTITY = ("model", "tokenizer", "prompts", "verifiers", "code", "threads", "environment")
"""Parts that ``identity`` of ``run.json`` has."""
_ALIKE = (("run", "name"), ("run", "dir"), ("run", "accept_changed"))
"""Keys of a configuration that have no effect on a run's steps."""


@dataclass(frozen=True, slots=True)
class RunDifferences:
    """The differences of two runs.

    Attributes:
        names: The folders of the two.
        differences: The differences, in the order of the parts.
        unknown: Parts that cannot be compared, and why.
    """

    names: tuple[str, str]
    differences: Sequence[Difference]
    unknown: Mapping[str, str]

    @property
    def same(self) -> list[str]:
        """The parts that are equal."""
        differ = {change.part for change in self.differences}
        return [part for part in PARTS if part not in differ and part not in self.unknown]

    def data(self) -> dict[str, Json]:
        """Return the result as JSON."""
        parts: dict[str, list[Json]] = {}
        for change in self.differences:
            line = {"key": change.key, "values": list(change.values), "text": change.words}
            parts.setdefault(change.part, []).append(line)
        return {
            "runs": list(self.names),
            "differences": parts,
            "same": self.same,
            "unknown": dict(self.unknown),
        }


def compare_runs(run: RunView, other: RunView) -> RunDifferences:
    """Return in what two runs differ."""
    names = run.folder.name, other.folder.name
    first, second = _recorded(run), _recorded(other)
    unknown = {
        part: f"not recorded in {name}"
        for part in PARTS
        for name, record in zip(names, (first, second), strict=True)
        if record.get(part) is None
    }
    changes = differences({k: v for k, v in first.items() if k not in unknown}, second)
    ordered = sorted(changes, key=lambda change: PARTS.index(change.part))
    return RunDifferences(names, ordered, unknown)


def _recorded(view: RunView) -> dict[str, Any]:
    """Return what is compared of a run, by part."""
    manifest = view.manifest
    identity = manifest.get("identity") or {}
    config = {
        key: dict(value) if isinstance(value, dict) else value for key, value in view.config.items()
    }
    for section, key in _ALIKE:
        if isinstance(config.get(section), dict):
            config[section].pop(key, None)
    machine = manifest.get("hardware")
    if machine is not None:
        machine = {**machine, "processes": manifest.get("processes")}
    return {
        "config": config or None,
        "data": manifest.get("data"),
        "versions": manifest.get("versions"),
        "machine": machine,
        **{part: identity.get(part) for part in _IDENTITY},
    }
