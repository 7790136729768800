"""Plots as images, drawn by matplotlib: PNG and SVG need no browser."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import ConfigError, MachineError
from rlvr_core.api.services import printable, write_atomic, write_failed
from rlvr_core.builtin.html_report.plot import Plot, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa3377", "#8a6d00", "#56b4e9", "#666666", "#cc79a7")
_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_NAME = 60


def write_images(plots: Sequence[Plot], folder: Path) -> list[Path]:
    """Write every plot that is not empty as PNG and SVG.

    Args:
        plots: The plots; each file has the id of its plot as its name.
        folder: The folder; created if missing.

    Raises:
        ConfigError: If ``folder`` is not a folder.
        MachineError: If matplotlib is not installed.
        RunError: If a file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MachineError(
            f"--plots needs matplotlib, which does not import: {error}",
            remedy='pip install "rlvr-core[report]"',
        ) from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ConfigError(
            f"'{folder}' is a file, not a folder", where="--plots", remedy="name another"
        ) from None
    except OSError as error:
        raise write_failed(error, folder) from error
    written = []
    for plot in plots:
        if plot.empty:
            continue
        height = 3.4 if plot.kind not in ("dots", "marks") else 1.4 + 0.36 * len(plot.places)
        figure = Figure(figsize=(7.2, min(height, 40.0)), layout="constrained")
        _draw(figure.add_subplot(), plot)
        if len(plot.series) > 1:
            figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=8)
        for suffix in ("png", "svg"):
            path = folder / f"{plot.id}.{suffix}"
            write_atomic(path, _bytes(figure, suffix))
            written.append(path)
    return written


def _bytes(figure: Any, suffix: str) -> bytes:
    """Return a figure as a file; the same figure gives the same bytes each time."""
    import matplotlib as mpl

    data = io.BytesIO()
    metadata = {"Date": None} if suffix == "svg" else {"Software": None}
    with (
        mpl.rc_context({"svg.hashsalt": "rlvr", "svg.fonttype": "none"}),
        warnings.catch_warnings(),
    ):
        # PNG has boxes for characters that matplotlib's font lacks; SVG has the text itself
        warnings.filterwarnings("ignore", "Glyph")
        figure.savefig(data, format=suffix, dpi=150, metadata=metadata)
    return data.getvalue()


def _draw(axes: Axes, plot: Plot) -> None:
    _DRAWN[plot.kind](axes, plot)
    axes.set_title(_text(plot.title), loc="left", fontsize=11)
    axes.set_xlabel(_text(plot.x_title))
    axes.set_ylabel(_text(plot.y_title) if plot.kind != "marks" else "")
    axes.grid(visible=True, linewidth=0.5, alpha=0.4)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _lines(axes: Axes, plot: Plot) -> None:
    for series in plot.series:
        colour, y = _colour(series), _numbers(series.y)
        few = len(series.x) <= 40
        axes.plot(
            _numbers(series.x),
            y,
            color=colour,
            linestyle=_DASHES[series.slot % len(_DASHES)],
            marker=_MARKERS[series.slot % len(_MARKERS)] if few else "",
            markersize=4,
            linewidth=1.5,
            label=_text(series.name),
        )
        if series.low:
            low, high = _numbers(series.low), _numbers(series.high)
            if few:
                axes.vlines(_numbers(series.x), low, high, color=colour, linewidth=1)
            else:
                axes.fill_between(_numbers(series.x), low, high, color=colour, alpha=0.18, lw=0)
    if plot.share:
        axes.set_ylim(bottom=0)


def _stack(axes: Axes, plot: Plot) -> None:
    bottom: dict[float, float] = {}
    for series in plot.series:
        x, y = _numbers(series.x), _numbers(series.y)
        width = min((b - a for a, b in pairwise(x)), default=1.0)
        below = [bottom.get(place, 0.0) for place in x]
        axes.bar(x, y, width, bottom=below, color=_colour(series), label=_text(series.name))
        bottom |= {place: base + size for place, base, size in zip(x, below, y, strict=True)}


def _bars(axes: Axes, plot: Plot) -> None:
    words = list(dict.fromkeys(str(x) for series in plot.series for x in series.x))
    width = 0.8 / len(plot.series)
    for number, series in enumerate(plot.series):
        x = [words.index(str(word)) + (number + 0.5) * width - 0.4 for word in series.x]
        y = _numbers(series.y)
        axes.bar(x, y, width, color=_colour(series), label=_text(series.name))
    axes.set_xticks(range(len(words)), [_text(word) for word in words])


def _dots(axes: Axes, plot: Plot) -> None:
    for place, series in _rows(axes, plot):
        y, x = [place[str(word)] for word in series.y], _numbers(series.x)
        marker = _MARKERS[series.slot % len(_MARKERS)]
        axes.plot(x, y, marker, color=_colour(series), label=_text(series.name))
        axes.hlines(y, _numbers(series.low), _numbers(series.high), color=_colour(series))
    axes.set_xlim(0, 1 if plot.share else None)


def _marks(axes: Axes, plot: Plot) -> None:
    for place, series in _rows(axes, plot):
        marker = _MARKERS[series.slot % len(_MARKERS)]
        y = [place[str(word)] for word in series.y]
        axes.plot(_numbers(series.x), y, marker, color=_colour(series), label=_text(series.name))


def _rows(axes: Axes, plot: Plot) -> Iterator[tuple[Mapping[str, float], Series]]:
    """Label one row per word, the first on top; yield each series with its positions."""
    words = plot.places
    axes.set_yticks(range(len(words)), [_text(word) for word in words])
    axes.set_ylim(len(words) - 0.5, -0.5)
    for number, series in enumerate(plot.series):
        shift = (number - (len(plot.series) - 1) / 2) * 0.6 / len(plot.series)
        yield {word: row + shift for row, word in enumerate(words)}, series


_DRAWN: dict[str, Callable[[Axes, Plot], None]] = {
    "lines": _lines,
    "stack": _stack,
    "bars": _bars,
    "dots": _dots,
    "marks": _marks,
}


def _colour(series: Series) -> str:
    return COLOURS[series.slot % len(COLOURS)]


def _numbers(values: Sequence[Any]) -> list[float]:
    return [float("nan") if value is None else float(value) for value in values]


def _text(text: str) -> str:
    """Return text that matplotlib shows as it is: a dollar sign would begin a formula."""
    shown = printable(text, _NAME).replace("\n", " ").replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown  # "_" would hide it from the legend
