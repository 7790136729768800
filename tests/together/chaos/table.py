"""The table of a measurement, for docs/guards.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

FOUND = ("stopped", "noted", "wrong name", "missed")


def table(results: Iterable[Mapping[str, Any]]) -> str:
    """A table by subject and precision, and a list of what is missed or has a wrong name."""
    lines = [line for line in results if line.get("fault")]
    dtypes = sorted({line["dtype"] for line in lines}, reverse=True)
    head = ["subject", *(f"{dtype}: {name}" for dtype in dtypes for name in ("runs", *FOUND))]
    text = [_row(head), _row("---" for _ in head)]
    for subject in [*sorted({line["subject"] for line in lines}), "all"]:
        cells = [subject]
        for dtype in dtypes:
            own = [x for x in lines if x["dtype"] == dtype and subject in (x["subject"], "all")]
            count = Counter(line["found"] for line in own)
            cells += [str(len(own)), *(str(count[name]) for name in FOUND)]
        text.append(_row(cells))
    rest = sorted((x for x in lines if x["found"] in FOUND[2:]), key=lambda x: str(x["case"]))
    text += ["", *(f"- {x['case']}: {x['found']} {x['by']}".rstrip() for x in rest)]
    return "\n".join(text) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
