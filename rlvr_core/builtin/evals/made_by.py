"""By which code and with how many threads an evaluation was made, recorded beside its results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_core.api.services import installed_code, unlike_code, write_atomic

FILE = "made_by.json"


def record_makers(folder: Path, host: Any, *, begun: bool) -> None:
    """Record code and threads before results are made.

    Args:
        folder: The task's result folder.
        host: The loaded plugins.
        begun: Whether it has results already; those that made them stay on record.
    """
    found = installed_code(host)
    before = read_makers(folder) if begun else []
    kept = [one for one in before if _identity(one) != _identity(found)]
    text = json.dumps([*kept, found], indent=1, ensure_ascii=False)
    write_atomic(folder / FILE, text + "\n")


def merge_makers(shards: Sequence[Path], out: Path) -> None:
    """Record for merged shards what made each of them; nothing if one does not tell."""
    makers = [read_makers(folder) for folder in shards]
    if not all(makers):
        return
    every = {json.dumps(_identity(one)): one for some in makers for one in some}
    text = json.dumps([*every.values()], indent=1, ensure_ascii=False)
    write_atomic(out / FILE, text + "\n")


def read_makers(folder: Path) -> list[dict[str, Any]]:
    """Return what made the results, the last last; empty for results of an earlier version."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) else []


def made_apart(one: Path, other: Path) -> tuple[list[str], list[str]]:
    """Compare what made two tasks' results.

    Returns:
        The packages of the core and of plugins with unlike code, a line each; and what is only
        said: plugins that only one had, and numbers of threads.
    """
    lines: dict[str, None] = {}
    notes: dict[str, None] = {}
    makers = read_makers(one), read_makers(other)
    if not all(makers):
        return [], []
    every = [*makers[0], *makers[1]]
    for maker in every[1:]:
        codes = every[0]["code"], maker["code"]
        for name, text in unlike_code(*codes).items():
            both = all(name in code["packages"] for code in codes)
            (lines if both else notes)[f"packages: {text}"] = None
        first, second = every[0]["threads"], maker["threads"]
        for key in sorted(first.keys() | second.keys()):
            if first.get(key) != second.get(key):
                notes[f"threads: {key}: {first.get(key)} and {second.get(key)}"] = None
    return list(lines), list(notes)


def _identity(maker: Mapping[str, Any]) -> dict[str, Any]:
    hashes = {name: one["sha256"] for name, one in maker["code"]["packages"].items()}
    return {"code": hashes, "threads": maker["threads"]}
