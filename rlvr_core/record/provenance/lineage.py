"""Origin of a model that rlvr trained: run, step, first model, data, and that model's origin.

A checkpoint has it in ``trainer/state.json``, among the identity of its run; what is exported from
one has it in ``rlvr_lineage.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr_core.api import Json
from rlvr_core.record.rundir import RunFolder

LINEAGE = "rlvr_lineage.json"
FORMAT = 1
_OF_MODEL = ("path", "revision", "commit", "sha256", "weights")


def of_run(prepared: Any, folder: RunFolder) -> dict[str, Json]:
    """Return what a run's checkpoints carry beside the hashes of its identity.

    Returns:
        ``run``: name of its folder; ``meta`` of its configuration; ``sources``: the data sources as
        configured; ``data``: their fingerprints; ``parent``: the lineage of ``model.path``, None
        if rlvr did not train it.
    """
    config = prepared.resolved.dump()
    return {
        "run": folder.name,
        "meta": config.get("meta"),
        "sources": config["data"]["sources"],
        "data": prepared.fingerprints,
        "parent": lineage_of(Path(str(prepared.model_path)).expanduser()),
    }


def lineage_of(folder: Path) -> dict[str, Json] | None:
    """Return where a model came from; None if rlvr did not write it, or it cannot be read.

    Args:
        folder: A checkpoint, in its run or copied from it, or what was exported from one.

    Returns:
        What ``of_run`` gives, and ``format``, ``step`` and ``model``: the model that the run began
        with. Of a run without ``run.identity``, only the step. An export also has
        ``exported``: the type it was merged in, or null.
    """
    exported = _json(folder / LINEAGE)
    if exported is not None:
        return exported
    state = _json(folder / "trainer" / "state.json")
    if state is None or not isinstance(state.get("step"), int):
        return None
    lineage: dict[str, Json] = {"format": FORMAT, "step": state["step"]}
    identity = state.get("identity")
    if not identity:
        return {**lineage, "run": None}
    model = identity["model"]
    kept = {key: model[key] for key in _OF_MODEL if model.get(key) is not None}
    return {**lineage, **identity["lineage"], "model": kept}


def write_lineage(source: Path, out: Path, merged: str | None) -> None:
    """Write the lineage of a model beside what is exported of it; nothing if it has none.

    Args:
        source: The checkpoint, or an earlier export.
        out: The folder of the export.
        merged: Type of the weights that an adapter was merged into; None if it was copied.
    """
    lineage = lineage_of(source)
    if lineage is not None:
        text = json.dumps({**lineage, "exported": {"merged": merged}}, indent=1, ensure_ascii=False)
        (out / LINEAGE).write_text(text + "\n", encoding="utf-8")


def lineage_lines(lineage: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Return a lineage as lines, label and text; the lineage of its first model follows."""
    run, step = lineage.get("run") or "a run that is not recorded", lineage.get("step")
    lines = [("written by", f"{run}, step {step}")]
    model = lineage.get("model") or {}
    if model.get("path"):
        digest = model.get("commit") or model.get("sha256")
        lines.append(("trained from", str(model["path"]) + (f", {digest}" if digest else "")))
    for name, source in (lineage.get("data") or {}).items():
        text = f"{name}: {source['problems']} problems, SHA-256 {source['sha256'][:16]}"
        lines.append(("trained on", text))
    for key, value in (lineage.get("meta") or {}).items():
        if value is not None:
            lines.append((f"meta.{key}", str(value)))
    parent = lineage.get("parent")
    return [*lines, *lineage_lines(parent)] if parent else lines


def _json(file: Path) -> dict[str, Json] | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
