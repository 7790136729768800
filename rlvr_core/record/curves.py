"""Summarises the evaluations of a run: their curves, and held-out results before and after it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_core.api import Estimate, Json
from rlvr_core.record.jsonl import read_jsonl
from rlvr_core.record.rundir import RunFolder
from rlvr_core.record.view import RunView, finite
from rlvr_core.stats.estimates import estimate_answers

HEADLINE = "accuracy"
"""The preferred headline metric of an eval task."""


def eval_curves(evals: Sequence[Mapping[str, Any]]) -> list[dict[str, Json]]:
    """Return the headline metric of each task by step."""
    curves: list[dict[str, Json]] = []
    for (task, temperature), lines in _series(evals).items():
        if (metric := _headline(lines)) is not None:
            curves.append(
                {
                    "task": task,
                    "temperature": temperature,
                    "metric": metric,
                    "step": [line["step"] for line in lines],
                    "value": [finite(line["metrics"].get(metric)) for line in lines],
                }
            )
    return curves


def heldout(folder: RunFolder, evals: Sequence[dict[str, Any]]) -> dict[str, Json]:
    """Return results before and after the run of the first sampled task and the first greedy one.

    Args:
        folder: The run's folder.
        evals: Its evaluations, at least one.
    """
    lines = _main_lines(evals)
    results = {
        "task": lines[0]["task"],
        "temperature": lines[0]["temperature"],
        "metric": _headline(lines),
        "n": lines[-1].get("n"),
        **_ends(folder, lines),
    }
    for (_, temperature), greedy in _series(evals).items():
        if temperature == 0:
            return results | {"greedy": _ends(folder, greedy)}
    return results


def before_after(view: RunView, n: int = 3) -> list[dict[str, Json]]:
    """Return held-out problems with their answers at the start and at the end of the run.

    Problems are taken at even distances from the task, not selected by result.

    Returns:
        Up to ``n`` of ``{problem_id, prompt, before, after}``; both are rows of the eval files.
    """
    lines = _main_lines(view.evaluations)
    if len(lines) < 2 or lines[0]["step"] == lines[-1]["step"]:
        return []
    first, last = (_first_answers(view.folder, line) for line in (lines[0], lines[-1]))
    shared = [problem for problem in first if problem in last]
    chosen = shared[:: max(1, len(shared) // n)][:n]
    return [
        {
            "problem_id": problem,
            "prompt": first[problem].get("prompt", ""),
            "before": first[problem],
            "after": last[problem],
        }
        for problem in chosen
    ]


def _ends(folder: RunFolder, lines: Sequence[Mapping[str, Any]]) -> dict[str, Json]:
    """Return value and interval before the first step and after the last evaluated one."""
    metric = _headline(lines)
    ends: dict[str, Json] = {}
    for name, line in (
        ("before", next((each for each in lines if each["step"] == 0), None)),
        ("after", next((each for each in reversed(lines) if each["step"] > 0), None)),
    ):
        ends[name] = ends[f"{name}_interval"] = None
        if line is not None:
            ends[name] = finite(line["metrics"].get(metric))
            accuracy = accuracy_of(folder, line) if metric == HEADLINE else None
            if accuracy is not None and accuracy.low is not None:
                ends[f"{name}_interval"] = [accuracy.low, accuracy.high]
    return ends


def accuracy_of(folder: RunFolder, line: Mapping[str, Any]) -> Estimate | None:
    """Return an evaluation's accuracy with its interval; None if it is no average over answers."""
    outcomes: dict[str, list[bool]] = {}
    for row in answers(folder, line):
        if isinstance(row.get("passed"), bool):
            outcomes.setdefault(str(row.get("problem_id")), []).append(row["passed"])
    value, accuracy = line["metrics"].get(HEADLINE), estimate_answers(outcomes.values())
    if accuracy.value is None or not isinstance(value, int | float):
        return None
    return accuracy if math.isclose(accuracy.value, value, abs_tol=1e-9) else None


def answers(folder: RunFolder, line: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of an evaluation's file."""
    return read_jsonl(folder.evals / Path(line["file"]).name)


def _headline(lines: Sequence[Mapping[str, Any]]) -> str | None:
    metrics = lines[0]["metrics"]
    return HEADLINE if HEADLINE in metrics else next(iter(metrics), None)


def _series(evals: Sequence[Mapping[str, Any]]) -> dict[tuple[str, float], list[Any]]:
    """Return the evaluations of each task at each temperature, in order."""
    series: dict[tuple[str, float], list[Any]] = {}
    for line in evals:
        series.setdefault((line["task"], float(line["temperature"])), []).append(line)
    return series


def _main_lines(evals: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the lines of the first sampled task; of the first greedy one if none is sampled."""
    every = list(_series(evals).items())
    sampled = [lines for (_, temperature), lines in every if temperature > 0]
    return next(iter(sampled or [lines for _, lines in every]), [])


def _first_answers(folder: RunFolder, line: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the first completion of each problem in an evaluation's file, by problem id."""
    first: dict[str, dict[str, Any]] = {}
    for row in answers(folder, line):
        first.setdefault(str(row.get("problem_id")), row)
    return first
