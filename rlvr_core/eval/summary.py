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
    metrics = _metrics(by_problem)
    return {
        "n_problems": len(by_problem),
        "n_completions": len(results),
        "truncation_rate": fmean(row["truncated"] for row in results),
        "metrics": {name: mean.data() for name, mean in metrics.items()},
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


def _metrics(by_problem: ByProblem) -> dict[str, Estimate]:
    metrics = {
        "accuracy": average(by_problem, lambda row: row["passed"]),
        "score": average(by_problem, lambda row: row["score"]),
        "unscored": average(by_problem, lambda row: row["passed"] is None),
        "truncated": average(by_problem, lambda row: row["truncated"]),
        "length": average(by_problem, lambda row: row["n_tokens"]),
    }
    return {name: mean for name, mean in metrics.items() if mean is not NOTHING}


def _graders(by_problem: ByProblem) -> dict[str, Json]:
    """Return each verifier's pass rate, mean score, share of extracted answers, mean parts."""
    names = dict.fromkeys(
        name for rows in by_problem.values() for row in rows for name in row["verdicts"]
    )
    return {name: _grader(by_problem, name) for name in names}


def _grader(by_problem: ByProblem, name: str) -> dict[str, Json]:
    verdicts = {
        id_: [row["verdicts"][name] for row in rows if name in row["verdicts"]]
        for id_, rows in by_problem.items()
    }
    verdicts = {id_: rows for id_, rows in verdicts.items() if rows}
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


def _tag_values(by_problem: ByProblem) -> dict[str, dict[str, list[str]]]:
    """Return the ids of the problems with each value of each tag; lists count for each item."""
    ids: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for id_, rows in by_problem.items():
        for tag, value in rows[0]["tags"].items():
            values = value if isinstance(value, list) else [value]
            plain = [item for item in values if isinstance(item, str | int | float | bool)]
            for item in dict.fromkeys(map(str, plain)):
                ids[tag][item].append(id_)
    return ids


def _small_tags(by_problem: ByProblem) -> dict[str, dict[str, list[str]]]:
    n = len(by_problem)
    return {
        tag: values
        for tag, values in _tag_values(by_problem).items()
        if len(values) <= MAX_STRATA and (len(values) < n or n < 3)
    }


def _strata(by_problem: ByProblem) -> dict[str, Any]:
    return {
        tag: {
            value: average({id_: by_problem[id_] for id_ in ids}, lambda row: row["passed"]).data()
            for value, ids in sorted(values.items())
        }
        for tag, values in sorted(_small_tags(by_problem).items())
    }
