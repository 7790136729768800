"""Shortens long series: keeps the extremes of intervals, and pools intervals of steps."""

from __future__ import annotations

from collections.abc import Sequence

POINTS = 1000
"""Maximum points of a line on the page."""
BINS = 300
"""Maximum positions along the steps for bars and for pooled groups."""

Points = tuple[list[float], list[float | None]]


def thin(x: Sequence[float], y: Sequence[float | None], limit: int = POINTS) -> Points:
    """Return at most ``limit`` points of a series, including its extremes.

    A longer series is divided into intervals of which the lowest and the highest value stay, so a
    single spike among a million steps is still visible.
    """
    if len(x) <= limit:
        return list(x), list(y)
    selected = {0, len(x) - 1}
    stretches = (limit - 2) // 2
    for number in range(stretches):
        start, end = (place * len(x) // stretches for place in (number, number + 1))
        known = [(value, i) for i in range(start, end) if (value := y[i]) is not None]
        if known:
            selected |= {min(known)[1], max(known)[1]}
    places = sorted(selected)
    return [x[i] for i in places], [y[i] for i in places]


def width_of(steps: Sequence[int]) -> int:
    """Return how many steps to pool for at most ``BINS`` positions."""
    if not steps:
        return 1
    return max(1, -(-(max(steps) - min(steps) + 1) // BINS))
