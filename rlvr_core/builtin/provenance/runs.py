"""Compares the records of two runs, or of a run with the machine that this is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_core.api import Json, RlvrError, RunView
from rlvr_core.api.services import (
    check_model_path,
    hardware,
    load_host,
    model_path,
    prepare,
    resolve_file,
    versions,
)
from rlvr_core.builtin.provenance.code import (
    THREAD_VARIABLES,
    file_tables,
    packages,
    threads,
)
from rlvr_core.builtin.provenance.compare import Difference, code_differences, differences
from rlvr_core.builtin.provenance.environment import environment
from rlvr_core.builtin.provenance.identity import identity_of, recorded_tables
from rlvr_core.builtin.provenance.model import model_identity

PARTS = (
    "config",
    "code",
    "verifiers",
    "surroundings",
    "data",
    "prompts",
    "model",
    "tokenizer",
    "versions",
    "machine",
    "threads",
    "environment",
)
_IDENTITY = ("model", "tokenizer", "prompts", "verifiers", "surroundings", "threads", "environment")
"""Parts that ``identity`` of ``run.json`` has."""
_ALIKE = (("run", "name"), ("run", "dir"), ("run", "accept_changed"))
"""Keys of a configuration that have no effect on a run's steps."""


@dataclass(frozen=True, slots=True)
class RunDifferences:
    """In what two runs differ.

    Attributes:
        names: The folders of the two; ``here`` for this machine.
        differences: The differences, in the order of the parts.
        unknown: Parts that cannot be compared, and why.
        missing: What a repetition of the run here lacks.
    """

    names: tuple[str, str]
    differences: Sequence[Difference]
    unknown: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """All parts that are compared."""
        return PARTS

    @property
    def same(self) -> list[str]:
        """The parts that are equal."""
        differ = {one.part for one in self.differences}
        return [part for part in PARTS if part not in differ and part not in self.unknown]

    def data(self) -> dict[str, Json]:
        """Return the result as JSON."""
        parts: dict[str, list[Json]] = {}
        for one in self.differences:
            line = {"key": one.key, "values": list(one.values), "text": one.words}
            parts.setdefault(one.part, []).append(line)
        return {
            "runs": list(self.names),
            "differences": parts,
            "same": self.same,
            "unknown": dict(self.unknown),
            "missing": list(self.missing),
        }


@dataclass(frozen=True, slots=True)
class _Record:
    """What is compared of a run, or of this machine.

    Attributes:
        parts: Values by part, without code.
        packages: Packages by name; None if they are not known.
        files: Table of files of each package.
    """

    parts: Mapping[str, Any]
    packages: Mapping[str, Any] | None
    files: Mapping[str, Mapping[str, str]]


def compare_runs(one: RunView, other: RunView) -> RunDifferences:
    """Return in what two runs differ."""
    return _compared(one.folder.name, other.folder.name, _recorded(one), _recorded(other))


def compare_with_here(view: RunView) -> RunDifferences:
    """Return in what a repetition of a run on this machine would differ, and what it lacks."""
    here, missing = _here(view)
    found = _compared(view.folder.name, "here", _recorded(view), here)
    return RunDifferences(found.names, found.differences, found.unknown, missing)


def _compared(name: str, other_name: str, one: _Record, other: _Record) -> RunDifferences:
    unknown = {
        part: f"not recorded in {label}"
        for part in PARTS
        for label, record in ((name, one), (other_name, other))
        if (record.packages if part == "code" else record.parts.get(part)) is None
    }
    known = {part: value for part, value in one.parts.items() if part not in unknown}
    found = differences(known, other.parts)
    if one.packages is not None and other.packages is not None:
        found += code_differences(one.packages, other.packages, one.files, other.files)
    ordered = sorted(found, key=lambda difference: PARTS.index(difference.part))
    return RunDifferences((name, other_name), ordered, unknown)


def _recorded(view: RunView) -> _Record:
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
    parts = {
        "config": config or None,
        "data": manifest.get("data"),
        "versions": manifest.get("versions"),
        "machine": machine,
        **{part: identity.get(part) for part in _IDENTITY},
    }
    packages_ = (identity.get("code") or {}).get("packages")
    return _Record(parts, packages_, recorded_tables(view.folder, identity))


def _here(view: RunView) -> tuple[_Record, list[str]]:
    """Describe this machine as a run would that repeats this one; and what it lacks."""
    host, missing = load_host(), list[str]()
    code = packages(host)
    before = _recorded(view)
    parts: dict[str, Any] = {
        "versions": versions(host.plugin_versions()),
        "config": before.parts["config"],
    }
    processes = view.manifest.get("processes")
    parts["machine"] = {**hardware(), "processes": processes}
    recorded = before.parts["threads"]
    if recorded is not None:  # the numbers of threads are set when the model is loaded
        parts["threads"] = {**recorded, **{k: threads()[k] for k in THREAD_VARIABLES}}
    parts["environment"] = environment()
    resolved = None
    try:
        resolved = resolve_file(view.folder.resolved, ["guards=[{use: defaults, off: true}]"], host)
        section = resolved.config.model
        place = model_path(section.path, host)
        check_model_path(place)
        parts["model"] = model_identity(place, section.revision)
    except RlvrError as error:
        missing += _words(error)
    if resolved is not None:
        try:
            path = resolved.config.model.path
            with prepare(resolved, lambda: model_path(path, host)) as prepared:
                parts |= identity_of(prepared) | {"threads": parts.get("threads")}
                parts["data"] = prepared.fingerprints
        except RlvrError as error:
            missing += [text for text in _words(error) if text not in missing]
    return _Record(parts, code, file_tables(code)), missing


def _words(error: RlvrError) -> list[str]:
    return [f"{one.what} ({one.where})" if one.where else one.what for one in error.complaints]
