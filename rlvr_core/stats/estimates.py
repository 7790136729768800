"""Statistical estimates: means and other statistics with their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from rlvr_core.api import Estimate

BLOCKS = 20

NOTHING = Estimate(None, 0, None, None, "none")


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate the mean of one value per problem.

    Values from 0 to 1 have Wilson's interval, widened or narrowed by the spread of the problems;
    others have Student's t, corrected for skewness. A single value outside 0 to 1, and such values
    that are all equal, have no interval, because they say nothing about the spread.

    Args:
        values: Means over each problem's completions.
    """
    if not values:
        return NOTHING
    import numpy as np

    from rlvr_core.stats import intervals

    n, mean, data = len(values), fmean(values), np.asarray(values, dtype=np.float64)
    if min(values) >= 0 and max(values) <= 1:
        low, high = intervals.bounded_mean(data)
        return Estimate(mean, n, float(low), float(high), "wilson")
    if len(set(values)) == 1:
        return Estimate(mean, n, None, None, "none")
    low, high = intervals.mean(data)
    return Estimate(mean, n, float(low), float(high), "t")


def estimate_answers(answers: Iterable[Sequence[float]]) -> Estimate:
    """Estimate the mean over problems of the mean over each one's completions; some have none."""
    return estimate([fmean(some) for some in answers if some])


def jackknife(value: float, n: int, without: Sequence[float | None]) -> Estimate:
    """Return the interval of any statistic by leaving out one of 20 blocks of problems at a time.

    The delete-a-group jackknife (Kott 2001, J. Official Statistics 17:521), with the t quantile
    of 19 degrees of freedom. If the statistic is from 0 to 1 whatever is left out, its variance
    goes into the interval that means of such values have; otherwise it is symmetric.

    Args:
        value: The statistic on everything.
        n: Number of problems.
        without: The statistic without each block in turn; None if it is then undefined.
    """
    left = [number for number in without if number is not None and math.isfinite(number)]
    rate = all(0 <= number <= 1 for number in (value, *left))
    if n < BLOCKS or len(left) != BLOCKS or (len(set(left)) == 1 and not rate):
        return Estimate(value, n, None, None, "none")
    from rlvr_core.stats import intervals

    error = stdev(left) * (BLOCKS - 1) / math.sqrt(BLOCKS)
    if rate:
        low, high = intervals.bounded_statistic(value, error, n, BLOCKS - 1)
        return Estimate(value, n, low, high, "jackknife")
    half = intervals.t_quantile(BLOCKS - 1) * error
    return Estimate(value, n, value - half, value + half, "jackknife")
