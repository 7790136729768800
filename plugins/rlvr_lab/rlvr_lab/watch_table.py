"""The table of what ``rlvr watch`` has evaluated: step by task by metric."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from rlvr_core.record.files import write_atomic

COLUMNS = ("run", "step", "task", "metric", "value", "low", "high", "n", "spoilt")


def table(out: Path) -> list[dict[str, Any]]:
    """Return one row per run, step, task and metric, from the summaries in a folder."""
    rows = []
    for path in sorted(out.glob("*/step*/summary.json")):
        run, step = path.parts[-3], int(path.parts[-2].removeprefix("step"))
        for task, summary in summaries(path).items():
            of_task = {
                f"task:{name}": estimate for name, estimate in summary["task_metrics"].items()
            }
            for name, estimate in {**summary["metrics"], **of_task}.items():
                numbers = {key: estimate[key] for key in ("value", "low", "high", "n")}
                key = {"run": run, "step": step, "task": task, "metric": name}
                rows.append({**key, **numbers, "spoilt": summary["spoilt"]})
    return sorted(rows, key=lambda row: (row["run"], row["step"]))


def summaries(path: Path) -> dict[str, Any]:
    """Read the summary of each task of one checkpoint, by task name."""
    tasks: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["tasks"]
    return tasks


def write_table(out: Path) -> None:
    """Write ``table.json``, ``table.csv`` and ``table.md``, all with the same rows.

    Raises:
        RunError: If they cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    rows = table(out)
    write_atomic(out / "table.json", json.dumps(rows, indent=1) + "\n")
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(out / "table.csv", text.getvalue())
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(_cell(row[name]) for name in COLUMNS) + " |" for row in rows]
    write_atomic(out / "table.md", "\n".join(lines) + "\n")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value).replace("|", "\\|")
