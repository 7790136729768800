"""Plots as plotly figures. A trace names a slot only; the page assigns its colour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlvr_core.api import MachineError
from rlvr_core.toolkit import printable
from rlvr_view.report.plot import Plot, Series

BARS_UP_TO = 40
"""Maximum points with intervals as error bars; longer series have a band."""
_NAME = 80
_HEIGHT = 340
_ROW = 30


def plotly_js() -> str:
    """Return the source of plotly, to be put into a page.

    Raises:
        MachineError: If plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MachineError(
            f"rlvr report needs plotly, which does not import: {error}",
            remedy='pip install "rlvr-core[report]"',
        ) from error
    # a browser reads line ends as \n, and the page's policy hashes what the browser reads
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")


def figure(plot: Plot) -> dict[str, Any]:
    """Return a plot as plotly's JSON."""
    traces = [trace for series in plot.series for trace in _TRACES[plot.kind](plot, series)]
    # only several lines need a legend
    legend = len(plot.series) > 1
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": _text(plot.x_title)}, "automargin": True},
        "yaxis": {
            "title": {"text": _text(plot.y_title)},
            "automargin": True,
            "exponentformat": "power",
        },
        "showlegend": legend,
        "barmode": "stack" if plot.kind == "stack" else "group",
        "height": _HEIGHT,
        "hovermode": "closest",
        "hoverdistance": -1,  # the nearest point, however near the pointer is
        "legend": {"traceorder": "normal"},
    }
    if plot.share:
        value = "xaxis" if plot.kind == "dots" else "yaxis"
        layout[value] |= {"rangemode": "tozero", "tickformat": ".3~g"}
    if plot.kind == "dots":
        layout["xaxis"] |= {"range": [0, 1]} if plot.share else {}
        rows = [_text(place) for place in plot.places]
        layout["yaxis"] |= {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": rows,
            "autorange": "reversed",  # plotly counts from below
            "title": {"text": ""},
        }
        layout["height"] = 140 + _ROW * len(rows) * len(plot.series)
        layout["scattermode"] = "group"  # runs beside each other in a row, not over each other
    if plot.kind == "bars":
        layout["xaxis"]["type"] = "category"
    return {"data": traces, "layout": layout}


def _lines(plot: Plot, series: Series) -> Iterator[dict[str, Any]]:
    few = len(series.x) <= BARS_UP_TO
    if series.low and not few:
        for end, fill in ((series.high, None), (series.low, "tonexty")):
            yield {
                "type": "scatter",
                "mode": "lines",
                "x": list(series.x),
                "y": list(end),
                "fill": fill,
                "line": {"width": 0},
                "hoverinfo": "skip",
                "showlegend": False,
                "legendgroup": str(series.slot),
                "meta": {"slot": series.slot, "band": True},
            }
    yield {
        **_common(plot, series),
        "mode": "lines+markers" if few else "lines",
        "legendgroup": str(series.slot),
        **({"error_y": _interval(series, series.y)} if series.low and few else {}),
        "hovertemplate": _hover("after %{x} steps: <b>%{y:.4~g}</b>", series),
    }


def _dots(plot: Plot, series: Series) -> Iterator[dict[str, Any]]:
    """Yield markers along rows that have names."""
    yield {
        **_common(plot, series),
        "mode": "markers",
        "orientation": "h",
        "cliponaxis": False,
        "y": [_text(str(y)) for y in series.y],
        "hovertemplate": _hover("%{y}: <b>%{x:.4~g}</b>", series),
        "error_x": _interval(series, series.x),
    }


def _bars(plot: Plot, series: Series) -> Iterator[dict[str, Any]]:
    label = (
        "%{x}: <b>%{y:.4~g}</b>" if plot.kind == "bars" else "after %{x} steps: <b>%{y:.4~g}</b>"
    )
    yield {**_common(plot, series), "type": "bar", "hovertemplate": _hover(label, series)}


_TRACES = {"lines": _lines, "stack": _bars, "bars": _bars, "dots": _dots}


def _common(plot: Plot, series: Series) -> dict[str, Any]:
    return {
        "type": "scatter",
        "name": _text(series.name),
        "x": list(series.x),
        "y": list(series.y),
        "customdata": [_text(text) for text in series.texts] or None,
        # hover templates insert these verbatim, and expand no fields in them
        "meta": {"slot": series.slot, "name": _text(series.name), "says": _wrapped(plot)},
    }


def _hover(label: str, series: Series) -> str:
    lines = ["%{meta.name}", label, *(["%{customdata}"] if series.texts else [])]
    return "<br>".join([*lines, "<i>%{meta.says}</i>"]) + "<extra></extra>"


def _interval(series: Series, values: Any) -> dict[str, Any]:
    """Return the ends of intervals as distances from the value, as plotly requires."""
    return {
        "type": "data",
        "symmetric": False,
        "array": _distances(values, series.high),
        "arrayminus": _distances(series.low, values),
        "thickness": 1.5,
        "width": 4,
    }


def _distances(lower: Any, upper: Any) -> list[float]:
    pairs = zip(lower, upper, strict=True)
    return [0.0 if low is None or high is None else max(0.0, high - low) for low, high in pairs]


def _wrapped(plot: Plot) -> str:
    """Return the caption wrapped for a tooltip."""
    lines, line = [], ""
    for word in plot.caption.split():
        if line and len(line) + len(word) > 56:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return "<br>".join(_text(text) for text in [*lines, line])


def _text(text: str) -> str:
    """Escape text for plotly, which interprets some tags and all entities as markup."""
    shown = printable(text, _NAME).replace("\n", " ")
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
