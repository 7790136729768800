"""Plots of the ledger, the phases of a step, staleness, and all metrics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rlvr_core.api import Metric
from rlvr_core.record.ledger import FATES
from rlvr_core.toolkit import finite
from rlvr_view.report.learning import STEPS
from rlvr_view.report.plot import Plot, Series
from rlvr_view.report.records import Records
from rlvr_view.report.thin import thin, width_of

NOT_EXPLAINED = "No component that is installed here declares this metric."


def ledger(runs: Sequence[Records]) -> Iterator[Plot]:
    """Yield the fates of the completions of each run, by step."""
    for number, run in enumerate(runs):
        rows = [row for row in run.rows if "ledger/drawn" in row]
        width = width_of([row["step"] for row in rows])
        columns = {
            fate: _summed(
                {row["step"]: finite(row.get(f"ledger/{fate}")) or 0 for row in rows}, width
            )
            for fate in FATES
        }
        series = [
            Series(fate.replace("_", " "), _places(counts, width), list(counts.values()), slot=slot)
            for slot, (fate, counts) in enumerate(columns.items())
            if any(counts.values())
        ]
        yield Plot(
            f"ledger-{number + 1}",
            f"Where completions went{_of(run, runs)}",
            "Every completion that was drawn ends in exactly one of these."
            + (f" {width} steps are added up in each bar." if width > 1 else ""),
            STEPS,
            "completions",
            series,
            "stack",
        )


def timing(runs: Sequence[Records]) -> Iterator[Plot]:
    """Yield the seconds by phase of each run, by step."""
    named = list(dict.fromkeys(p for run in runs for p in totals(run.timing) if "." not in p))
    for number, run in enumerate(runs):
        steps = run.timing
        width = width_of(list(steps))
        counts = Counter(step // width for step in steps)
        series = []
        for slot, phase in enumerate(named):
            sums = _summed({step: times.get(phase, 0.0) for step, times in steps.items()}, width)
            means = [total / counts[place] for place, total in sums.items()]
            series.append(Series(phase, _places(sums, width), means, slot=slot))
        yield Plot(
            f"timing-{number + 1}",
            f"Time of a step by phase{_of(run, runs)}",
            "Wall-clock seconds; evaluations and checkpoints are not part of a step."
            + (f" Each bar is the mean of {width} steps." if width > 1 else ""),
            STEPS,
            "seconds",
            series,
            "stack",
        )


def totals(steps: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """Return the seconds of each phase over the whole run, the longest first."""
    seconds: Counter[str] = Counter()
    for times in steps.values():
        seconds.update(times)
    return dict(seconds.most_common())


def staleness(runs: Sequence[Records]) -> Iterator[Plot]:
    """Yield the staleness of trained completions; nothing for synchronous runs."""
    ages = [run.summary.get("staleness") or {} for run in runs]
    if not any(ages):
        return
    series = []
    for slot, (run, counts) in enumerate(zip(runs, ages, strict=True)):
        total = sum(counts.values())
        if total:
            shares = [count / total for count in counts.values()]
            texts = [f"{count:,} completions" for count in counts.values()]
            series.append(Series(run.label, list(counts), shares, slot=slot, texts=texts))
    yield Plot(
        "staleness",
        "Age of what was trained on",
        "Updates between sampling and training, as shares of the completions that were trained on.",
        "updates",
        "share of completions",
        series,
        "bars",
        share=True,
    )


def metrics(runs: Sequence[Records], declared: Mapping[str, Metric | None]) -> Iterator[Plot]:
    """Yield a plot of each metric, by name, captioned with its meaning."""
    slugs: Counter[str] = Counter()
    for name, metric in declared.items():
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        slugs[slug] += 1
        series = []
        for slot, run in enumerate(runs):
            steps, values = run.metric(name)
            if steps:
                series.append(Series(run.label, *thin(steps, values), slot=slot))
        yield Plot(
            f"metric-{slug}" + (f"-{slugs[slug]}" if slugs[slug] > 1 else ""),
            name,
            metric.meaning if metric else NOT_EXPLAINED,
            STEPS,
            metric.unit if metric else "",
            series,
            share=metric is not None and metric.unit == "share",
        )


def _of(run: Records, runs: Sequence[Records]) -> str:
    return f": {run.label}" if len(runs) > 1 else ""


def _summed(values: Mapping[int, float], width: int) -> dict[int, float]:
    sums: dict[int, float] = {}
    for step, value in values.items():
        sums[step // width] = sums.get(step // width, 0) + value
    return dict(sorted(sums.items()))


def _places(sums: Mapping[int, float], width: int) -> list[float]:
    return [place * width + (width - 1) / 2 for place in sums]
