"""Plots of learning: pass rates with intervals, evaluations, kinds of problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from rlvr_core.api import Estimate
from rlvr_view.report.groups import Seen
from rlvr_view.report.plot import Number, Plot, Series
from rlvr_view.report.records import Records
from rlvr_view.report.thin import thin, width_of

STEPS = "steps done"
KINDS = 12
"""Maximum values of a tag to show; rarer ones are counted together."""
OTHERS = "(others)"


def learning(runs: Sequence[Records]) -> Iterator[Plot]:
    """Yield pass rate and reward in training, and the evaluations."""
    yield _pass_rate(runs)
    yield Plot(
        "reward",
        "Reward in training",
        "Mean shaped reward of the completions drawn in each step. It is what is optimised, not "
        "what is wanted: compare it with the pass rate.",
        STEPS,
        "mean reward",
        [_metric(run, "reward/mean", slot) for slot, run in enumerate(runs)],
    )
    yield from evaluated(runs)


def evaluated(runs: Sequence[Records]) -> Iterator[Plot]:
    """Yield the accuracy of each evaluation: one plot for a single run, else one per task."""
    tasks = list(
        dict.fromkeys(
            (point["task"], float(point["temperature"]))
            for run in runs
            for point in run.evaluations
            if "accuracy" in point["metrics"]
        )
    )
    if len(runs) == 1:
        series = [_evaluations(runs[0], *task, slot) for slot, task in enumerate(tasks)]
        yield _evaluation_plot("evaluations", "Held-out accuracy", series)
        return
    for number, task in enumerate(tasks):
        series = [
            Series(run.label, evaluations.x, evaluations.y, evaluations.low, evaluations.high, slot)
            for slot, run in enumerate(runs)
            if (evaluations := _evaluations(run, *task, slot)).x
        ]
        title = f"Held-out accuracy: {task_name(*task)}"
        yield _evaluation_plot(f"evaluations-{number + 1}", title, series)


def task_name(task: str, temperature: float) -> str:
    """Return a task's name with the kind of its sampling."""
    return f"{task} ({f'temperature {temperature:g}' if temperature else 'greedy'})"


def kinds(runs: Sequence[Records]) -> Iterator[Plot]:
    """Yield the pass rate by data set and by each tag of the problems, such as level or subject.

    For one run, the first and the last quarter of its steps; for several, the last quarter of each.
    """
    keys = dict.fromkeys(key for run in runs for seen in run.groups.seen for key in seen.labels)
    for number, key in enumerate(keys):
        values = Counter(
            seen.labels[key] for run in runs for seen in run.groups.seen if key in seen.labels
        )
        if len(values) > 1 and max(values.values()) == 1:
            continue  # every problem has another: an id, not a kind
        common = sorted(value for value, _ in values.most_common(KINDS))
        names = common if len(values) <= KINDS else [*common, OTHERS]
        yield Plot(
            f"kinds-{number + 1}",
            f"Pass rate by {key}",
            "Mean over the groups drawn in a quarter of the steps, with its 95% interval. A "
            "sampler may draw other problems late than early, so this is no evaluation.",
            "pass rate",
            key,
            list(_quarters(runs, key, names)),
            "dots",
            share=True,
        )


def _quarters(runs: Sequence[Records], key: str, names: Sequence[str]) -> Iterator[Series]:
    for slot, run in enumerate(runs):
        seen = [group for group in run.groups.seen if key in group.labels]
        if not seen:
            continue
        # the summary of a damaged run may lack the number of steps
        steps = max(run.view.steps, max(group.step for group in seen) + 1)
        quarter = (steps + 3) // 4
        last = [group for group in seen if group.step >= steps - quarter]
        if len(runs) > 1:
            yield _dots(run.label, last, key, names, slot)
            continue
        first = [group for group in seen if group.step < quarter]
        yield _dots("first quarter of the steps", first, key, names, 0)
        if steps > quarter:
            yield _dots("last quarter", last, key, names, 1)


def _dots(name: str, seen: Sequence[Seen], key: str, names: Sequence[str], slot: int) -> Series:
    rates: dict[str, list[float]] = {value: [] for value in names}
    for group in seen:
        value = group.labels[key]
        rates[value if value in rates else OTHERS].append(group.rate)
    estimates = {value: _estimate(rate) for value, rate in rates.items() if rate}
    return Series(
        name,
        [estimate.value if estimate.value is not None else 0.0 for estimate in estimates.values()],
        list(estimates),
        [estimate.low for estimate in estimates.values()],
        [estimate.high for estimate in estimates.values()],
        slot,
        [f"{estimate.n:,} groups" for estimate in estimates.values()],
    )


def _pass_rate(runs: Sequence[Records]) -> Plot:
    width = width_of([seen.step for run in runs for seen in run.groups.seen])
    pooled = f" {width} steps are pooled in each point." if width > 1 else ""
    return Plot(
        "pass-rate",
        "Pass rate in training",
        "Mean over the groups drawn, each with its share of completions that passed. The band is "
        "the 95% interval, which takes into account that completions of one group are alike."
        + pooled,
        STEPS,
        "pass rate",
        [_pooled(run, width, slot) for slot, run in enumerate(runs)],
        share=True,
    )


def _pooled(run: Records, width: int, slot: int) -> Series:
    rates: dict[int, list[float]] = {}
    for group in run.groups.seen:
        rates.setdefault(group.step // width, []).append(group.rate)
    if not rates:  # without rollouts, use the metric that steps recorded, without an interval
        return _metric(run, "pass_rate", slot)
    estimates = {place: _estimate(rate) for place, rate in sorted(rates.items())}
    return Series(
        run.label,
        [place * width + (width - 1) / 2 for place in estimates],
        [estimate.value for estimate in estimates.values()],
        [estimate.low for estimate in estimates.values()],
        [estimate.high for estimate in estimates.values()],
        slot,
        [f"{estimate.n:,} groups" for estimate in estimates.values()],
    )


def _metric(run: Records, name: str, slot: int) -> Series:
    steps, values = run.metric(name)
    x, y = thin(steps, values)
    return Series(run.label, x, y, slot=slot)


def _evaluations(run: Records, task: str, temperature: float, slot: int) -> Series:
    points = [
        point
        for point in run.evaluations
        if (point["task"], float(point["temperature"])) == (task, temperature)
        and "accuracy" in point["metrics"]
    ]
    return Series(
        task_name(task, temperature),
        [point["step"] for point in points],
        [point["metrics"]["accuracy"] for point in points],
        _ends(points, "low"),
        _ends(points, "high"),
        slot,
        [f"n = {point['n']}" for point in points],
    )


def _ends(points: Sequence[dict[str, Any]], key: str) -> list[Number]:
    return [point[key] for point in points]


def _evaluation_plot(id_: str, title: str, series: Sequence[Series]) -> Plot:
    caption = (
        "Accuracy on problems that are not trained on, after so many steps; 0 is the model before "
        "training. Bars are 95% intervals."
    )
    return Plot(id_, title, caption, STEPS, "accuracy", series, share=True)


def _estimate(values: Sequence[float]) -> Estimate:
    estimate: Estimate = _estimator()(values)
    return estimate


@cache
def _estimator() -> Any:
    from rlvr_core.stats.estimates import estimate

    return estimate  # finding plugins takes as long as a plot
