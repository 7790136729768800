"""The table of a sweep: parameters, metric with its interval, and progress of each trial."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rlvr_cluster.sweeps.state import FAILED
from rlvr_core.api import Json
from rlvr_core.toolkit import brief, print_line, print_table

if TYPE_CHECKING:
    from rlvr_cluster.sweeps.spec import Sweep
    from rlvr_cluster.sweeps.state import Result


def best_first(results: Iterable[Result], direction: str) -> list[Result]:
    """Sort results: those without a metric last, ties by number."""
    sign = -1 if direction == "maximize" else 1

    def place(result: Result) -> tuple[bool, float, int]:
        value = result.estimate.value
        return value is None, 0.0 if value is None else sign * value, result.trial.number

    return sorted(results, key=place)


def print_results(sweep: Sweep, results: Sequence[Result]) -> None:
    """Print one line for each trial, and below them why runs failed."""
    keys = list(sweep.axes)
    head = ("trial", *keys, sweep.spec.metric, "95% interval", "n", "status")
    print_table(head, [row(keys, result) for result in results])
    for result in results:
        for run, state in zip(result.trial.runs, result.states, strict=True):
            if state.status == FAILED:
                print_line(f"{run.label} failed: {state.error} (see {run.log})")


def row(keys: Sequence[str], result: Result) -> tuple[str, ...]:
    """Return the cells of one trial."""
    values, estimate = result.trial.values, result.estimate
    interval = ""
    if estimate.low is not None and estimate.high is not None:
        interval = f"{brief(estimate.low)} to {brief(estimate.high)}"
    return (
        str(result.trial.number),
        *(shown(values[key]) for key in keys),
        "" if estimate.value is None else brief(estimate.value),
        interval,
        str(estimate.n),
        result.status,
    )


def shown(value: Json) -> str:
    """Return a parameter's value as the text of a cell."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def as_json(sweep: Sweep, results: Sequence[Result], report: str | None) -> dict[str, Json]:
    """Return the table as data."""
    return {
        "name": sweep.spec.name,
        "folder": str(sweep.folder),
        "metric": sweep.spec.metric,
        "trials": [
            {
                "trial": result.trial.number,
                "parameters": result.trial.values,
                "status": result.status,
                "estimate": result.estimate.data(),
                "runs": [
                    {
                        "seed": run.seed,
                        "status": state.status,
                        "value": state.value,
                        "error": state.error,
                        "config": str(run.file),
                        "run": None if state.run is None else str(state.run),
                    }
                    for run, state in zip(result.trial.runs, result.states, strict=True)
                ],
            }
            for result in results
        ],
        "report": report,
    }
