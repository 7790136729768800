"""The figures of an evaluation computed once more, by plain code from the stored results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from rlvr_core.api import RunError

Row = dict[str, Any]


def check_figures(summary: Mapping[str, Any], results: Sequence[Row]) -> None:
    """Check accuracy and score of a summary: means over problems of the means of each.

    Raises:
        RunError: If they are others.
    """
    for metric, key in (("accuracy", "passed"), ("score", "score")):
        if metric not in summary["metrics"]:
            continue
        means = []
        for rows in _by_problem(results):
            known = [float(row[key]) for row in rows if row[key] is not None]
            means += [sum(known) / len(known)] if known else []
        _check(metric, summary["metrics"][metric]["value"], means)


def check_pass_at_k(
    found: Mapping[str, Any], results: Sequence[Row], correct: Callable[[Row], bool | None]
) -> None:
    """Check pass@k: the mean over problems of the chance that k of its n are not all wrong.

    Args:
        found: The estimates, by k.
        results: The stored results.
        correct: Says of a result whether it counts as correct; None if it has no verdict.

    Raises:
        RunError: If they are others.
    """
    for k in map(int, found):
        chances = []
        for rows in _by_problem(results):
            known = [one for row in rows if (one := correct(row)) is not None]
            wrong, n = known.count(False), len(known)
            if n >= k:
                # one after the other is drawn, and is wrong as well
                chances.append(1 - math.prod((wrong - i) / (n - i) for i in range(k)))
        _check(f"pass@{k}", found[str(k)]["value"], chances)


def _by_problem(results: Sequence[Row]) -> list[list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in results:
        found.setdefault(row["problem_id"], []).append(row)
    return list(found.values())


def _check(metric: str, value: float | None, means: Sequence[float]) -> None:
    due = fmean(means) if means else None
    same = value is due if value is None or due is None else math.isclose(value, due, abs_tol=1e-9)
    if not same:
        raise RunError(
            f"the {metric} of the evaluation would be reported as {value}, and its results make "
            f"{due}",
            remedy=(
                "look at what summarises results; they are written, and the summary is not",
                "the same command again computes it anew",
            ),
        )
