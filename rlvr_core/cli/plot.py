"""Text plots."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

Points = tuple[Sequence[float], Sequence[float | None]]

_MARKERS = ("braille", "x", "o", "+", "*")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def plot(series: Mapping[str, Points], *, width: int = 76, height: int = 15) -> str:
    """Plot series over steps as lines of text, without colour.

    Args:
        series: Steps and values by label; None and non-finite values are skipped.
        width: Columns.
        height: Rows, without the legend.

    Returns:
        The plot with its legend below; empty if there are no values.
    """
    drawn = {label: points for label, raw in series.items() if (points := _usable(raw))}
    if not drawn:
        return ""
    import plotext

    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, height)
    legend = []
    for label, points, marker in _with_markers(drawn):
        signal = figure.signal([x for x, _ in points], [y for _, y in points], marker=marker)
        figure.draw(signal.lines(len(points) > 1 and marker == "braille"))
        legend.append(f"{'⠒' if marker == 'braille' else marker} {label}")
    values = [y for points in drawn.values() for _, y in points]
    if min(values) >= 0 and max(values) <= 1:
        figure.ruler("y").lim(0, 1)
    elif min(values) == max(values):
        figure.ruler("y").lim(values[0] - 1, values[0] + 1)
    steps = [x for points in drawn.values() for x, _ in points]
    ticks = _ticks(min(steps), max(steps))
    figure.ruler("x").lim(min(steps), max(*steps, min(steps) + 1))
    figure.ruler("x").ticks(ticks, [f"{tick:g}" for tick in ticks])
    text = _ANSI.sub("", str(figure.build()))
    figure.clear()
    rows = [row.rstrip() for row in text.splitlines() if row.strip()]
    return "\n".join([*rows, "     step    " + "   ".join(legend)])


def _with_markers(
    drawn: Mapping[str, list[tuple[float, float]]],
) -> list[tuple[str, list[tuple[float, float]], str]]:
    """Add markers: long series become lines, short ones single marks on top of them."""
    result: list[tuple[str, list[tuple[float, float]], str]] = []
    marks = iter(_MARKERS[1:] * len(drawn))
    for label, points in sorted(drawn.items(), key=lambda item: -len(item[1])):
        marker = "braille" if not result else next(marks)
        result.append((label, points, marker))
    return result


def _usable(points: Points) -> list[tuple[float, float]]:
    return [
        (float(x), float(y))
        for x, y in zip(*points, strict=True)
        if y is not None and math.isfinite(y)
    ]


def _ticks(low: float, high: float) -> list[float]:
    """Return up to seven integer ticks over a range, at 1, 2 or 5 times a power of ten."""
    span = max(high - low, 1.0)
    step = 10 ** math.floor(math.log10(span))
    for factor in (0.1, 0.2, 0.5, 1, 2, 5):
        if span / (step * factor) <= 6 and step * factor >= 1:
            step *= factor
            break
    first = math.ceil(low / step)
    return [first * step + i * step for i in range(int((high - first * step) // step) + 1)]
