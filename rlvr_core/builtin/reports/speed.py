"""Time of a run's steps by phase, and figures of its GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from rlvr_core.api.services import read_jsonl

if TYPE_CHECKING:
    from rlvr_core.api import RunView

_GPU = "gpu/"


def speed_of(view: RunView) -> dict[str, Any]:
    """Return the mean seconds of a step by phase, and medians of GPU metrics.

    Both leave out the first step where there are more, since kernels are chosen and compiled in it.
    A phase such as ``train.forward`` is a part of ``train``. The memory is the most of any step.
    Of a GPU there is also which attention the run took, and why no faster one.
    """
    rows = view.metrics.rows
    # a resumed run has timings of steps that were cut away: the newest of each step counts
    lines = {line.get("step"): line.get("seconds") for line in _timings(view)}
    known = [lines.get(row["step"]) for row in rows]
    phases = [line for line in known if isinstance(line, dict)]
    later = phases[1:] or phases
    found: dict[str, Any] = {}
    if later:
        names = dict.fromkeys(name for line in later for name in line)
        found["seconds"] = {n: sum(_numbers(later, n)) / len(later) for n in names}
    gpu = {n: _numbers(rows[1:] or rows, n) for n in sorted(view.metrics.keys()) if _is_gpu(n)}
    if reached := {name: median(values) for name, values in gpu.items() if values}:
        if "gpu/peak_memory" in reached:
            reached["gpu/peak_memory"] = max(_numbers(rows, "gpu/peak_memory"))
        found["gpu"] = reached
    if chosen := view.manifest.get("checks", {}).get("attention"):
        found["attention"] = chosen
    return found


def lines_of(speed: Mapping[str, Any]) -> Iterator[str]:
    """Yield the figures as lines of text."""
    seconds = speed.get("seconds", {})
    whole = sum(value for name, value in seconds.items() if "." not in name)
    for name in _in_order(seconds):
        outer, _, inner = name.rpartition(".")
        label = f"  {inner}" if outer else inner
        share = f"{seconds[name] / whole:7.1%}" if whole else ""
        yield f"  {label:<28}{seconds[name]:>9.3f} s{share}"
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
    if chosen := speed.get("attention"):
        why = f": {chosen['reason']}" if chosen["reason"] else ""
        yield f"  attention: {chosen['rows']} rows, {chosen['kernel']}{why}"


def _timings(view: RunView) -> list[dict[str, Any]]:
    return [*read_jsonl(view.folder.traces / "timing.jsonl")]


def _in_order(names: Mapping[str, float]) -> Iterator[str]:
    """Yield each phase, followed by its parts."""
    for name in names:
        if "." not in name:
            yield name
            yield from (part for part in names if part.startswith(f"{name}."))


def _is_gpu(name: str) -> bool:
    return name.startswith(_GPU)


def _numbers(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(row[name]) for row in rows if isinstance(row.get(name), int | float)]
