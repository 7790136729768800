"""Time of a run's steps by phase, and figures of its GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from rlvr_core.record.view import RunView, finite


def speed_of(view: RunView) -> dict[str, Any]:
    """Return the mean seconds of a step by phase, and medians of GPU metrics.

    Both leave out the first step where there are more, since kernels are chosen and compiled in it.
    The memory is the most of any step. Of a GPU there is also which attention the run took, and why
    no faster one.
    """
    speed: dict[str, Any] = {}
    steps = list(view.step_seconds.values())
    if later := steps[1:] or steps:
        names = dict.fromkeys(name for line in later for name in line)
        speed["seconds"] = {
            name: math.fsum(line.get(name, 0.0) for line in later) / len(later) for name in names
        }
    rows = view.metrics.rows
    for name in sorted(metric for metric in view.metrics if metric.startswith("gpu/")):
        values = [value for row in rows if (value := finite(row.get(name))) is not None]
        if values:
            most = max(values) if name == "gpu/peak_memory" else median(values[1:] or values)
            speed.setdefault("gpu", {})[name] = most
    if attention := view.manifest.get("checks", {}).get("attention"):
        speed["attention"] = attention
    return speed


def phase_rows(seconds: Mapping[str, float]) -> Iterator[tuple[str, float, str]]:
    """Yield name, seconds and share of each phase, the longest first and followed by its parts."""
    whole = sum(value for name, value in seconds.items() if "." not in name)
    longest = sorted(seconds, key=lambda name: -seconds[name])
    for name in (name for name in longest if "." not in name):
        for phase in (name, *(part for part in longest if part.startswith(f"{name}."))):
            yield phase, seconds[phase], f"{seconds[phase] / whole:.1%}" if whole else ""


def lines_of(speed: Mapping[str, Any]) -> Iterator[str]:
    """Yield the figures as lines of text."""
    for phase, seconds, share in phase_rows(speed.get("seconds", {})):
        outer, _, inner = phase.rpartition(".")
        yield f"  {f'  {inner}' if outer else inner:<28}{seconds:>9.3f} s{share:>7}"
    gpu = speed.get("gpu", {})
    words = [
        f"{label} {gpu[name]:{form}}{unit}"
        for name, label, form, unit in (
            ("gpu/mfu", "MFU", ".1%", ""),
            ("gpu/train_tokens_per_second", "trained", ",.0f", " tokens/s"),
            ("gpu/peak_memory", "peak", ".1f", " GiB"),
        )
        if name in gpu
    ]
    if words:
        yield f"  GPU of process 0, while it trains: {', '.join(words)}"
    if attention := speed.get("attention"):
        why = f": {attention['reason']}" if attention["reason"] else ""
        yield f"  attention: {attention['rows']} rows, {attention['kernel']}{why}"
