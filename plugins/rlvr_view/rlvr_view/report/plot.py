"""The content of a plot, independent of the page that draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Number = float | None

Kind = Literal["lines", "stack", "bars", "dots"]
"""``lines`` over a number, with bands; ``stack`` of bars over a number; ``bars`` beside each other
over words; ``dots`` with intervals beside words."""


@dataclass(frozen=True, slots=True)
class Series:
    """One row of points.

    Attributes:
        name: Name in the legend.
        x: Positions along the horizontal axis: numbers, or words of ``bars``.
        y: Values; None leaves a gap. Words of ``dots``.
        low: Lower ends of the 95% intervals of the values.
        high: Upper ends.
        slot: Number of its colour, line style and marker.
        texts: Text of each point beside its numbers.
    """

    name: str
    x: Sequence[float | str]
    y: Sequence[Number | str]
    low: Sequence[Number] = ()
    high: Sequence[Number] = ()
    slot: int = 0
    texts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot.

    Attributes:
        id: Name of its files and its place in the page: letters, digits and dashes.
        title: Title of the plot.
        caption: How to read it, in a sentence or two.
        x_title: Label of the horizontal axis.
        y_title: Label of the vertical axis.
        series: The rows of points.
        kind: How they are drawn.
        share: Whether values are shares, from 0 to 1.
    """

    id: str
    title: str
    caption: str
    x_title: str
    y_title: str
    series: Sequence[Series]
    kind: Kind = "lines"
    share: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(y is not None for serie_ in self.series for y in serie_.y)

    @property
    def places(self) -> list[str]:
        """The words of ``dots``, in order of appearance."""
        return list(dict.fromkeys(str(y) for serie_ in self.series for y in serie_.y))
