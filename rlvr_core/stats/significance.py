"""Paired differences, their tests and the correction for several of them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from rlvr_core.api import Estimate
from rlvr_core.stats import intervals
from rlvr_core.stats.intervals import Array, Interval

PRIOR_PAIRS = 2.0
"""Weight of one assumed pair of opposite differences, spread over 1 + the problems that changed."""


def sign_flip_p(differences: Sequence[int]) -> float:
    """Return the exact two-sided p-value of paired differences, by flipping their signs.

    If both evaluations came from the same distribution, each problem's difference could as well
    have had the other sign. The p-value is the share of the 2^n ways to choose the signs whose sum
    is at least as far from 0 as the sum that was seen. All of them are counted, not sampled: the
    distribution of the sum is built up problem by problem. With one completion a problem this is
    McNemar's exact test.

    Args:
        differences: Completions of each problem that pass now, less those that passed before.
    """
    # sum of signed sizes = 2 * (sum of those with a plus) - all: subset sums have half the range
    sizes = [abs(change) for change in differences if change]
    chances = np.zeros(sum(sizes) + 1)
    chances[0], reach = 1.0, 0
    for size in sizes:
        reach += size
        chances[size : reach + 1] += chances[: reach + 1 - size].copy()
        chances[: reach + 1] /= 2
    farther = (sum(sizes) - abs(sum(differences))) // 2
    return min(1.0, 2 * float(chances[: farther + 1].sum()))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values for their number: the chance of any false alarm among them stays below 5%.

    Holm's step-down method (Holm 1979, Scand. J. Statistics 6:65). None is no test, and stays.
    """
    order = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, index) in enumerate(order):
        least = max(least, min(1.0, (len(order) - rank) * p))
        adjusted[index] = least
    return adjusted


def paired_difference(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Estimate the mean change of one value per problem, from the same problems twice.

    A single problem has no interval. Values outside 0 to 1 are taken to be able to change by as
    much as the largest of them all differs from the smallest; equal values have no interval.
    """
    if not before:
        return Estimate(None, 0, None, None, "none")
    largest, smallest = max(*before, *after), min(*before, *after)
    reach = 1.0 if smallest >= 0 and largest <= 1 else largest - smallest
    changes = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    n, mean = len(before), fmean(changes.tolist())
    if n == 1 or reach == 0:
        return Estimate(mean, n, None, None, "none")
    low, high = difference(changes / reach)
    return Estimate(mean, n, reach * float(low), reach * float(high), "t")


def difference(values: Array) -> Interval:
    """Return the interval of a mean paired difference, from -1 to 1 each; at least 2 problems.

    Student's t on the differences of the problems, with one assumed pair of opposite differences
    added to their variance. It is as large as the differences of the problems that changed, counts
    for less the more of these there are, and for 1 where none changed: the interval then has the
    width that the rule of three gives to an event which was never seen.

    Args:
        values: Difference of each problem, (..., problems).
    """
    n, centre = values.shape[-1], values.mean(-1)
    changed = (values != 0).sum(-1)
    typical = ((values**2).sum(-1) + 1) / (changed + 1)
    squares = ((values - centre[..., None]) ** 2).sum(-1)
    variance = (squares + typical * PRIOR_PAIRS / (1 + changed)) / (n - 1)
    half = intervals.t_quantile(n - 1) * np.sqrt(variance / n)
    return np.maximum(centre - half, -1.0), np.minimum(centre + half, 1.0)
