"""Findings of guards and events of a run, by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from rlvr_core.api import RunView
from rlvr_core.api.services import finite
from rlvr_core.builtin.html_report.learning import STEPS
from rlvr_core.builtin.html_report.plot import Plot, Series
from rlvr_core.builtin.html_report.records import Records

Place = TypeVar("Place")

Rule = Literal["rise", "count", "evidence", "rounding"]
"""``rise`` of a count over the run, ``count`` above 0 in a step, ``evidence`` that stops the run
at 1, or an error above what ``rounding`` explains."""

RULES: Mapping[str, Rule] = {
    "canaries/wrong": "rise",
    "references/denied": "rise",
    "references/mixed": "rise",
    "references/several": "rise",
    "draws/unexpected": "count",
    "tokens/missing": "count",
    "loss/error": "rounding",
    "optimizer/error": "rounding",
    "collapse/evidence": "evidence",
    "seeds/evidence": "evidence",
    "seeds/against": "evidence",
    "calibration/evidence": "evidence",
    "step_skipped": "count",
    "updates/skipped": "count",
    "updates/missing": "count",
    "updates/at_rest": "count",
    "idle/steps": "count",
    "ledger/error": "count",
    "verify/error_rate": "count",
    "engine/restarts": "count",
    "engine/resent": "count",
    "staleness/expired": "count",
}
"""Metrics that are 0, or close to it, in each step of a healthy run."""
HALF = 0.5
"""Minimum evidence to show; a run stops at 1."""
MARKS = 300
"""Maximum marks of one kind on the time line; the table beside it counts all."""
MAX_CUT_OFF = 0.02
"""Share of answers of an evaluation that may be cut off at the token cap."""
ROUNDING = 1e-4
"""The band of ``loss/error`` and ``optimizer/error`` (docs/guards.md)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A metric that shows that something went wrong.

    Attributes:
        metric: Its name.
        steps: The steps at which it does.
        values: Its values at these steps.
    """

    metric: str
    steps: Sequence[int]
    values: Sequence[float]


def findings(run: Records) -> list[Finding]:
    """Return the findings in the metrics of a run's guards, in the order of ``RULES``."""
    found = []
    for metric, rule in RULES.items():
        points = list(_found(rule, *run.metric(metric)))
        if points:
            found.append(Finding(metric, [p[0] for p in points], [p[1] for p in points]))
    return found + _cut_off(run)


def _cut_off(run: Records) -> list[Finding]:
    """Return the eval tasks of which too many answers were cut off, with the shares."""
    found: dict[str, Finding] = {}
    for line in run.view.evaluations:
        share = (line.get("basis") or {}).get("cut_off", 0.0)
        if share > MAX_CUT_OFF:
            name = f"{line['task']}: cut off"
            one = found.setdefault(name, Finding(name, [], []))
            found[name] = Finding(name, [*one.steps, line["step"]], [*one.values, share])
    return list(found.values())


def run_findings(view: RunView) -> list[dict[str, Any]]:
    """Return the findings as JSON: the service ``core/run-findings``."""
    found = findings(Records(view, view.name))
    return [
        {"metric": one.metric, "steps": list(one.steps), "values": list(one.values)}
        for one in found
    ]


def _found(
    rule: Rule, steps: Sequence[int], values: Sequence[float | None]
) -> Iterator[tuple[int, float]]:
    before = 0.0
    for step, value in zip(steps, values, strict=True):
        if value is None:
            continue
        limit = {"rise": before, "count": 0.0, "evidence": HALF, "rounding": ROUNDING}[rule]
        before = value if rule == "rise" else before
        if value > limit:
            yield step, value


def events(run: Records) -> dict[str, list[int]]:
    """Return the steps of a run's events: not finite, resumed, evaluated, checkpoints, end."""
    odd = [row["step"] for row in run.rows if any(map(_odd, row.values()))]
    steps = (path.name.removeprefix("step") for path in run.view.checkpoints)
    found = {
        "number not finite": odd,
        "resumed": run.timing.resumed,
        "evaluation": sorted({point["step"] for point in run.evaluations}),
        "checkpoint kept": sorted(int(step) for step in steps if step.isdecimal()),
        f"end: {run.view.outcome}": [run.view.steps],
    }
    return {name: places for name, places in found.items() if places}


def _some(marks: Sequence[Place]) -> Sequence[Place]:
    """Return at most ``MARKS`` marks, evenly spaced, including the first."""
    return marks[:: max(1, -(-len(marks) // MARKS))]


def _odd(value: object) -> bool:
    return isinstance(value, float) and finite(value) is None


def time_line(runs: Sequence[Records]) -> Plot:
    """Return the time line of the runs' events and findings, by step."""
    series = []
    for slot, run in enumerate(runs):
        marks = [(step, name, "") for name, steps in events(run).items() for step in _some(steps)]
        marks += [
            (step, one.metric, f"{value:.4g}")
            for one in findings(run)
            for step, value in _some(list(zip(one.steps, one.values, strict=True)))
        ]
        x, y, texts = zip(*marks, strict=True) if marks else ((), (), ())
        series.append(Series(run.label, x, y, slot=slot, texts=texts))
    return Plot(
        "time-line",
        "Events and findings",
        "A mark stands at each step at which something happened. Names with a slash are metrics of "
        "guards that are 0, or near it, where nothing is wrong.",
        STEPS,
        "",
        series,
        "marks",
    )
