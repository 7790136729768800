"""Statistical estimates: intervals for rates and means, paired tests, pass@k."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import fmean, stdev

from rlvr_core.api import Estimate

Z95 = 1.959963984540054
"""97.5% quantile of the normal distribution."""
T95_19 = 2.093024054408263
"""97.5% quantile of Student's t with 19 degrees of freedom."""
RESAMPLES = 4000
BLOCKS = 20

NOTHING = Estimate(None, 0, None, None, "none")


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95% score interval of a rate (Wilson 1927, JASA 22:209).

    Args:
        successes: Number of successes among ``n``.
        n: Number of trials, at least 1.
    """
    rate, square = successes / n, Z95 * Z95
    scale = 1 + square / n
    centre = (rate + square / (2 * n)) / scale
    half = Z95 / scale * math.sqrt(rate * (1 - rate) / n + square / (4 * n * n))
    # at the ends the exact bound is 0 or 1, which rounding would miss
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return low, high


def bootstrap(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return the 95% percentile bootstrap interval of the mean; deterministic for a given seed."""
    import numpy as np

    data = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    size = max(1, 1_000_000 // len(data))
    means = [
        data[rng.integers(0, len(data), (min(size, RESAMPLES - done), len(data)))].mean(axis=1)
        for done in range(0, RESAMPLES, size)
    ]
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return float(low), float(high)


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate the mean of one value per problem, with Wilson's interval or the bootstrap's.

    Wilson's interval is used if all values are 0 or 1. Otherwise a single value, and values that
    are all equal, have no interval, because they say nothing about the spread.
    """
    if not values:
        return NOTHING
    n, mean = len(values), fmean(values)
    if all(value in (0, 1) for value in values):
        return Estimate(mean, n, *wilson(round(sum(values)), n), "wilson")
    if len(set(values)) == 1:
        return Estimate(mean, n, None, None, "none")
    return Estimate(mean, n, *bootstrap(values), "bootstrap")


def jackknife(value: float, n: int, without: Sequence[float | None]) -> Estimate:
    """Return the interval of any statistic by leaving out one of 20 blocks of problems at a time.

    The delete-a-group jackknife (Kott 2001, J. Official Statistics 17:521), with the t quantile
    of 19 degrees of freedom.

    Args:
        value: The statistic on everything.
        n: Number of problems.
        without: The statistic without each block in turn; None if it is then undefined.
    """
    left = [one for one in without if one is not None and math.isfinite(one)]
    if n < BLOCKS or len(left) != BLOCKS or len(set(left)) == 1:
        return Estimate(value, n, None, None, "none")
    half = T95_19 * stdev(left) * (BLOCKS - 1) / math.sqrt(BLOCKS)
    return Estimate(value, n, value - half, value + half, "jackknife")


def mcnemar(gained: int, lost: int) -> float:
    """Exact two-sided p-value of McNemar's test, from the pairs that changed.

    Args:
        gained: Number of problems that failed before and passed after.
        lost: Number of problems that passed before and failed after.
    """
    n, fewer = gained + lost, min(gained, lost)
    tail = sum(math.comb(n, k) for k in range(fewer + 1))
    return float(min(Fraction(1), Fraction(2 * tail, 2**n)))


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return the chance that at least one of ``k`` of ``n`` completions is correct.

    The ``k`` completions are drawn without replacement: 1 - C(n - c, k) / C(n, k), Chen et al.
    2021, arXiv:2107.03374.

    Raises:
        ValueError: If ``k`` is not between 1 and ``n``.
    """
    if not 1 <= k <= n or not 0 <= correct <= n:
        raise ValueError(f"pass@{k} cannot be told from {correct} of {n} completions")
    return float(1 - Fraction(math.comb(n - correct, k), math.comb(n, k)))
