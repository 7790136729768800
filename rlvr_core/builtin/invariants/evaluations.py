"""Whether an evaluation's figures are those of the completions that are recorded with it."""

from __future__ import annotations

import json
import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from rlvr_core.api import EvalFinished

OURS = "core/"
"""Tasks whose accuracy is the share of completions with an outcome that passed."""


def wrong_evaluation(run_dir: Path, event: EvalFinished) -> str:
    """Return what is wrong with the figures of an evaluation, as recorded; empty if nothing is."""
    folder = run_dir / "evals"
    lines = [json.loads(one) for one in (folder / "index.jsonl").read_bytes().splitlines()]
    mine = [one for one in lines if (one["step"], one["task"]) == (event.step, event.task)]
    if not mine:
        return "is not in evals/index.jsonl"
    line = mine[-1]
    told = {name: value for name, value in event.report.metrics.items() if math.isfinite(value)}
    for name, value in told.items():
        if line["metrics"].get(name) != value:
            return f"is recorded with {name} {line['metrics'].get(name)}, and it was {value}"
    if not event.task.startswith(OURS):
        return ""
    rows = [json.loads(one) for one in (folder / line["file"]).read_bytes().splitlines()]
    return _other_figures(told, line["n"], rows)


def _other_figures(told: dict[str, float], n: int, rows: list[dict[str, Any]]) -> str:
    first = [row for row in rows if row["sample"] == 0]
    if len(first) != n:
        return f"says {n} problems, and its file has completions of {len(first)}"
    passed = [row["passed"] for row in rows if row["passed"] is not None]
    due = fmean(passed) if passed else None
    has = told.get("accuracy")
    if has is None or due is None:
        return "" if has is due else f"says an accuracy of {has}, and its completions make {due}"
    if math.isclose(has, due, rel_tol=1e-9):
        return ""
    return f"says an accuracy of {has:.6g}, and its {len(rows)} completions make {due:.6g}"
