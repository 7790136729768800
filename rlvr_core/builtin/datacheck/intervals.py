"""Intervals of rates."""

from __future__ import annotations

import math

_Z95 = 1.959963984540054
"""97.5 % quantile of the normal distribution."""


def wilson(passed: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a rate of ``passed`` in ``n`` trials, at least 1."""
    rate, scale = passed / n, 1 + _Z95**2 / n
    centre = rate + _Z95**2 / (2 * n)
    half = _Z95 * math.sqrt(rate * (1 - rate) / n + _Z95**2 / (4 * n * n))
    low = 0.0 if passed == 0 else (centre - half) / scale
    return low, 1.0 if passed == n else (centre + half) / scale
