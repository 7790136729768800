"""Finds faults in a run's metrics, with their steps."""

from __future__ import annotations

from typing import Any

from rlvr_core.toolkit import RunView, finite

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
