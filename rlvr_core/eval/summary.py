"""Summarises one task's results: rates and means with n and interval, also by tag."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import Any

from rlvr_core.api import Estimate, EvalReport, EvalTask, Group, Json
from rlvr_core.eval.store import Row
from rlvr_core.stats.estimates import (
    BLOCKS,
    NOTHING,
    estimate,
    estimate_answers,
    jackknife,
)
from rlvr_core.verify.pool import percentile

MAX_STRATA = 60
"""Number of values above which a tag is treated as a label and not stratified by."""

ByProblem = Mapping[str, Sequence[Row]]


def summarise(results: Sequence[Row]) -> dict[str, Json]:
    """Summarise a task from its results alone.

    Every estimate is an average over problems of the average over a problem's completions.
    ``accuracy`` excludes completions without an outcome; ``unscored`` is their share.
    """
    by_problem = group_by_problem(results)
    numbers: dict[str, Callable[[Row], float | bool | None]] = {
        "accuracy": lambda row: row["passed"],
        "score": lambda row: row["score"],
        "unscored": lambda row: row["passed"] is None,
        "truncated": lambda row: row["truncated"],
        "length": lambda row: row["n_tokens"],
    }
    metrics = {name: average(by_problem, number) for name, number in numbers.items()}
    return {
        "n_problems": len(by_problem),
        "n_completions": len(results),
        "truncation_rate": fmean(row["truncated"] for row in results),
        "metrics": {name: mean.data() for name, mean in metrics.items() if mean is not NOTHING},
        **usage_of(results),
        "graders": _graders(by_problem),
        "strata": _strata(by_problem),
    }


def usage_of(rows: Sequence[Row]) -> dict[str, Json]:
    """Return the requests, tokens and cost of a remote model under ``usage``; empty if unused.

    A sum covers the answers whose usage is known; ``uncounted`` is the number of the others.
    """
    known = [row["usage"] for row in rows if row.get("usage")]
    if not known:
        return {}
    seconds = sorted(usage["seconds"] for usage in known)
    totals: dict[str, Json] = {
        "answers": len(known),
        "requests": sum(usage["requests"] for usage in known),
        "seconds_p50": percentile(seconds, 0.50),
        "seconds_p99": percentile(seconds, 0.99),
        "uncounted": sum(usage["completion_tokens"] is None for usage in known),
    }
    for name in ("prompt_tokens", "completion_tokens", "cost"):
        counts = [usage[name] for usage in known if usage[name] is not None]
        if counts:
            totals[name] = sum(counts)
    return {"usage": totals}


def task_metrics(task: EvalTask, groups: Sequence[Group], report: EvalReport) -> dict[str, Json]:
    """Return the task's own metrics, each with an interval.

    A metric that is an average over problems is treated as such; for any other, the interval is
    computed by leaving out blocks of problems. ``report`` is the task's report on all groups.
    """
    singles = [task.score([group]).metrics for group in groups]

    @cache
    def without_blocks() -> list[Mapping[str, float]]:
        blocks = range(BLOCKS)
        left = [[g for i, g in enumerate(groups) if i % BLOCKS != block] for block in blocks]
        return [task.score(some).metrics for some in left]

    estimates: dict[str, Json] = {}
    for name, value in report.metrics.items():
        if not math.isfinite(value):
            continue  # treated as absent
        mine = [single[name] for single in singles if name in single]
        if mine and math.isclose(fmean(mine), value, rel_tol=1e-9, abs_tol=1e-12):
            estimates[name] = estimate(mine).data()
        else:
            left = [metrics.get(name) for metrics in without_blocks()]
            estimates[name] = jackknife(value, report.n, left).data()
    return estimates


def group_by_problem(results: Sequence[Row]) -> dict[str, list[Row]]:
    """Group the rows by problem, in order."""
    groups: dict[str, list[Row]] = {}
    for row in results:
        groups.setdefault(row["problem_id"], []).append(row)
    return groups


def average(by_problem: ByProblem, number: Callable[[Row], float | bool | None]) -> Estimate:
    """Estimate the mean of a number over problems, of those that have it."""
    known = [
        [float(value) for row in rows if (value := number(row)) is not None]
        for rows in by_problem.values()
    ]
    return estimate_answers(known)


def _graders(by_problem: ByProblem) -> dict[str, Json]:
    """Return each verifier's pass rate, mean score, share of extracted answers, mean parts."""
    verdicts: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for id_, rows in by_problem.items():
        for row in rows:
            for name, verdict in row["verdicts"].items():
                verdicts[name][id_].append(verdict)
    return {name: _grader(of_problems) for name, of_problems in verdicts.items()}


def _grader(verdicts: ByProblem) -> dict[str, Json]:
    everyone = [verdict for rows in verdicts.values() for verdict in rows]
    numbers: dict[str, Json] = {
        "passed": average(verdicts, _passed).data(),
        "score": average(verdicts, lambda verdict: verdict["score"]).data(),
    }
    if any(verdict["extracted"] is not None for verdict in everyone):
        extracted = average(verdicts, lambda verdict: verdict["extracted"] is not None)
        numbers["extracted"] = extracted.data()
    parts = dict.fromkeys(part for verdict in everyone for part in verdict["parts"])
    if parts:
        numbers["parts"] = {part: average(verdicts, _part(part)).data() for part in parts}
    numbers |= usage_of(everyone)
    statuses = [verdict["status"] for verdict in everyone]
    numbers["statuses"] = {status: statuses.count(status) for status in sorted(set(statuses))}
    return numbers


def _part(name: str) -> Callable[[Row], float | None]:
    return lambda verdict: verdict["parts"].get(name)


def _passed(verdict: Row) -> bool | None:
    if verdict["score"] is None:
        return None
    passed: bool | None = verdict["passed"]
    return verdict["score"] >= 1.0 if passed is None else passed


def _strata(by_problem: ByProblem) -> dict[str, Any]:
    """Return the accuracy by tag and value, of tags that are no labels; lists count for each."""
    tags: dict[str, dict[str, dict[str, Sequence[Row]]]] = defaultdict(lambda: defaultdict(dict))
    for id_, rows in by_problem.items():
        for tag, value in rows[0]["tags"].items():
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, str | int | float | bool):
                    tags[tag][str(item)][id_] = rows
    n = len(by_problem)
    return {
        tag: {
            value: average(some, lambda row: row["passed"]).data()
            for value, some in sorted(values.items())
        }
        for tag, values in sorted(tags.items())
        if len(values) <= MAX_STRATA and (len(values) < n or n < 3)
    }
