"""What the metrics of a run say went wrong, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlvr_core.record.view import RunView, finite

COUNTS = (
    "canaries/wrong",
    "draws/unexpected",
    "tokens/missing",
    "step_skipped",
    "updates/skipped",
    "updates/missing",
    "idle/steps",
    "ledger/error",
    "verify/error_rate",
    "engine/restarts",
    "engine/resent",
    "engine/syncs_on_disk",
    "staleness/expired",
)
"""Metrics that are 0 in each step of a healthy run."""
MAX_CUT_OFF = 0.02
"""Share of answers of an evaluation that may be cut off at the token cap."""


def run_findings(view: RunView) -> list[dict[str, Any]]:
    """Return each metric of ``COUNTS`` that was above 0, with the steps and its values there."""
    findings = []
    for metric in COUNTS:
        points = [
            (row["step"], value)
            for row in view.metrics.rows
            if (value := finite(row.get(metric))) is not None and value > 0
        ]
        if points:
            steps, values = zip(*points, strict=True)
            findings.append({"metric": metric, "steps": list(steps), "values": list(values)})
    return findings


def cut_off_notes(view: RunView) -> Iterator[str]:
    """Say what to do about evaluations of which too many answers were cut off."""
    shares: dict[str, float] = {}
    for line in view.evaluations:
        share = (line.get("basis") or {}).get("cut_off", 0.0)
        shares[line["task"]] = max(share, shares.get(line["task"], 0.0))
    for task, share in shares.items():
        if share > MAX_CUT_OFF:
            yield (
                f"evaluation {task}: up to {share:.1%} of the answers were cut off at "
                "the token cap; raise max_tokens of the task in eval.tasks"
            )
