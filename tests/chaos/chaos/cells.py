"""What is known of each fault in each engine and precision, as the page holds it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Run = tuple[str, str, str]
"""Fault, engine and precision."""

KINDS = ("stopped", "note", "wrong name", "missed")
NOT_RUN = "(not run)"
NOT_APPLICABLE = "-"
MISSED = "**missed**"
_SHORT = {"f32": "float32", "bf16": "bfloat16"}


def cell(line: Mapping[str, Any]) -> str:
    """Return the cell of a result: who spoke at which step; in brackets if not of the cause."""
    if line["found"] == "missed":
        return MISSED
    if line["found"] == "note":
        said = "note"
    else:
        by = line["by"] if line["found"] == "guard" else "message"
        said = f"{by} {line['step']}"
    return said if line["right"] else f"({said})"


def kind(text: str) -> str:
    """Return what a cell counts as, one of ``KINDS``; empty if nothing was run."""
    if text in (NOT_RUN, NOT_APPLICABLE):
        return ""
    if text == MISSED:
        return "missed"
    if text.startswith("("):
        return "wrong name"
    return "note" if text == "note" else "stopped"


def measured(results: Iterable[Mapping[str, Any]]) -> dict[Run, str]:
    """Return the cells of results."""
    return {(x["fault"], x["backend"], x["dtype"]): cell(x) for x in results}


def read(page: Path) -> dict[Run, str]:
    """Return the cells of a page that was written before; none if there is no page."""
    cells: dict[Run, str] = {}
    columns: list[tuple[str, str]] = []
    for line in page.read_text(encoding="utf-8").splitlines() if page.exists() else ():
        if line.startswith("| fault | "):
            heads = [head.rpartition(", ") for head in line.strip("| ").split(" | ")[1:]]
            columns = [(engine, _SHORT[dtype]) for engine, _, dtype in heads if dtype in _SHORT]
        if found := re.match(r"\| .*\(`([\w-]+)`(?:, set \d+)?\) \| (.*) \|$", line):
            values = [value.strip() for value in found.group(2).split(" | ")]
            for column, value in zip(columns, values, strict=True):
                cells[found.group(1), *column] = value
    return {run: value for run, value in cells.items() if value != NOT_APPLICABLE}
