"""A plot as a table: for screen readers, and for copying numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlvr_view.report.comparing import Table, interval
from rlvr_view.report.plot import Plot, Series

LONG = 30
"""Maximum points of a line listed one by one; of a longer one, ends and extremes are listed."""


def described(plot: Plot) -> Table:
    """Return the numbers of a plot."""
    if plot.kind == "stack":
        return Table(plot.title, ("part", "sum of the bars"), list(_sums(plot)))
    if plot.kind == "dots":
        return Table(plot.title, ("", plot.y_title, plot.x_title, ""), list(_dots(plot)))
    if plot.kind == "lines" and max(len(series.x) for series in plot.series) > LONG:
        head = ("", "points", "first", "last", "lowest", "highest")
        return Table(plot.title, head, list(_extremes(plot)))
    rows = [(series.name, *point) for series in plot.series for point in _points(series)]
    return Table(plot.title, ("", plot.x_title, plot.y_title or "value", ""), rows)


def _points(series: Series) -> Iterator[tuple[str, str, str]]:
    for i, x in enumerate(series.x):
        yield _place(x), _value(series, i, series.y[i]), series.texts[i] if series.texts else ""


def _dots(plot: Plot) -> Iterator[Sequence[str]]:
    for series in plot.series:
        for i, place in enumerate(series.y):
            yield series.name, str(place), _value(series, i, series.x[i]), series.texts[i]


def _extremes(plot: Plot) -> Iterator[Sequence[str]]:
    for series in plot.series:
        known = [i for i, y in enumerate(series.y) if isinstance(y, int | float)]
        if known:
            size = {i: float(series.y[i] or 0) for i in known}
            places = (known[0], known[-1], min(known, key=size.__getitem__), _highest(size))
            descriptions = [
                f"{_value(series, i, size[i])} after {_place(series.x[i])}" for i in places
            ]
            yield series.name, str(len(known)), *descriptions


def _highest(size: dict[int, float]) -> int:
    return max(size, key=size.__getitem__)


def _sums(plot: Plot) -> Iterator[Sequence[str]]:
    for series in plot.series:
        yield series.name, f"{sum(float(y) for y in series.y if y is not None):,.6g}"


def _value(series: Series, i: int, value: object) -> str:
    if not isinstance(value, int | float):
        return "not finite"
    if not series.low or series.low[i] is None:
        return f"{value:.4g}"
    return interval({"value": value, "low": series.low[i], "high": series.high[i]})


def _place(x: float | str) -> str:
    return x if isinstance(x, str) else f"{x:g}"
