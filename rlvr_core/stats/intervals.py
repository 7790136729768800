"""The 95% intervals: of a rate of counts, and of a mean over problems.

All are closed formulas without resampling. How often each holds the truth is simulated
in ``benchmarks/interval_coverage.py``; the constants below were chosen by that measure. Arrays
have problems along their last axis, and any number of evaluations before it.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Interval = tuple[Array, Array]

Z95 = 1.959963984540054
"""97.5% quantile of the normal distribution."""
PRIOR_SPREAD = 0.15
"""Weight of the assumption that a problem's completions all agree, in problems of each outcome."""
MAX_SKEWNESS = 3.0
"""Largest skewness that is corrected for; more is an outlier among few problems."""


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95% score interval of a rate (Wilson 1927, JASA 22:209).

    Args:
        successes: Number of successes among ``n``.
        n: Number of trials, at least 1.
    """
    low, high = _score_interval(np.asarray(successes / n), np.asarray(float(n)), Z95)
    return float(low), float(high)


def bounded_mean(values: Array) -> Interval:
    """Return the interval of a mean of values from 0 to 1, one a problem.

    Wilson's interval with the number of problems divided by the design effect: the variance of the
    values over that of outcomes which are 0 or 1 (Korn and Graubard 1998; Franco et al. 2019). It
    is Wilson's own for one completion a problem, and for problems whose completions all agree. The
    design effect is shrunk towards 1, which matters where few problems vary; where it is not 1 the
    variance is an estimate, and the quantile goes from the normal towards Student's t.

    Args:
        values: Means over each problem's completions, (..., problems).
    """
    centre = values.mean(-1)
    return of_moments(centre, ((values - centre[..., None]) ** 2).sum(-1), values.shape[-1])


def of_moments(centre: Array, squares: Array, n: int) -> Interval:
    """Return the same from the mean of ``n`` problems and the sum of their squared deviations."""
    if n == 1:
        return _score_interval(centre, np.ones_like(centre), Z95)
    effect = _design_effect(centre, squares, n)
    square = Z95**2 + (t_quantile(n - 1) ** 2 - Z95**2) * np.maximum(1 - effect, 0)
    return _score_interval(centre, n / effect, np.sqrt(square))


def bounded_statistic(value: float, error: float, n: int, degrees: int) -> tuple[float, float]:
    """Return the interval of a statistic from 0 to 1 that is no mean over problems.

    Args:
        value: The statistic.
        error: Its standard error.
        n: Number of problems.
        degrees: Degrees of freedom of the error.
    """
    effect = _design_effect(np.asarray(value), np.asarray(error**2 * n * (n - 1)), n)
    low, high = _score_interval(np.asarray(value), n / effect, t_quantile(degrees))
    return float(low), float(high)


def mean(values: Array) -> Interval:
    """Return the interval of a mean of values of any size, one a problem; at least 2 problems.

    Student's t, corrected for skewness by Hall's transformation (Hall 1992, JRSS B 54:221): lengths
    of answers have a long tail, and the symmetric interval then lies too low.

    Args:
        values: Means over each problem's completions, (..., problems); not all equal.
    """
    n, centre = values.shape[-1], values.mean(-1)
    rest = values - centre[..., None]
    deviation = np.sqrt((rest**2).sum(-1) / (n - 1))
    skewness = np.clip((rest**3).mean(-1) / deviation**3, -MAX_SKEWNESS, MAX_SKEWNESS)
    bent = np.where(np.abs(skewness) < 1e-6, 1e-6, skewness) / math.sqrt(n)
    quantile, error = t_quantile(n - 1), deviation / math.sqrt(n)

    def untransform(x: float) -> Array:
        return np.asarray(3 / bent * (np.cbrt(1 + bent * (x - bent / 6)) - 1))

    return centre - error * untransform(quantile), centre - error * untransform(-quantile)


@cache
def t_quantile(degrees: int) -> float:
    """Return the 97.5% quantile of Student's t with ``degrees`` of freedom, at least 1.

    By bisection on the finite series of its distribution (Abramowitz and Stegun 26.7.3, 26.7.4).
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _chance_within(angle, degrees) < 0.95 else (low, angle)
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _chance_within(angle: float, degrees: int) -> float:
    """Return the chance that abs(t) is below sqrt(degrees) times the angle's tangent."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(2 + odd, degrees + 1, 2):
        total += term
        term *= cosine * cosine * (k - 1) / k
    if odd:
        return 2 / math.pi * (angle + sine * total)
    return sine * total


def _design_effect(value: Array, squares: Array, n: int) -> Array:
    """Return the variance of problems over that of outcomes 0 and 1, shrunk towards 1."""
    largest = n * value * (1 - value)
    prior = PRIOR_SPREAD / (1 + largest)
    return np.asarray((squares + prior) / (largest + prior))


def _score_interval(rate: Array, n: Array, quantile: float | Array) -> Interval:
    """Return the rates that ``rate`` of ``n`` trials does not refute, by the score test."""
    square = quantile * quantile / n
    centre = (rate + square / 2) / (1 + square)
    half = np.sqrt(square * (rate * (1 - rate) + square / 4)) / (1 + square)
    # at the ends the exact bound is 0 or 1, which rounding would miss
    return np.where(rate <= 0, 0.0, centre - half), np.where(rate >= 1, 1.0, centre + half)
