"""How often 95% intervals of a pass rate hold the truth, exactly, with one answer a problem.

The number of problems that pass is binomial, so coverage is a sum of its chances: nothing is drawn.
The same for several answers, as many of each problem, by convolution.
Beside Wilson's interval, which evaluations have, stand other well-known ones, and what is possible
at all. An interval whose ends rise with the count holds a rate for the counts of one stretch. Of
the finite number of stretches, the nearest to 95% says what a single rate allows; that the
stretches of rising rates can only move up says what all of them allow together.

    python benchmarks/interval_exact.py    # half a minute on one core
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rlvr_core.builtin.evals import intervals

Array = NDArray[np.float64]
Method = Callable[[int], tuple[Array, Array]]

PROBLEMS = (15, 30, 100, 1000)
RATES = np.arange(40, 1961) / 2000
"""Pass rates from .02 to .98 in steps of .0005."""
SEVERAL = ((15, 4), (15, 16), (30, 4), (100, 4))
"""Problems, and the answers that each of them has."""
HALF = np.arange(2, 51, 2) / 100
"""Pass rates from .02 to .5; above it is the same."""
NEAR = 0.015
"""Distance from .95 that counts as near."""
_GRID = 20_001


def chances(n: int, rates: Array) -> Array:
    """Return the chance of each count at each rate, (n + 1, rates)."""
    counts = np.arange(n + 1)
    ways = np.array(
        [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in counts]
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = counts[:, None] * np.log(rates) + (n - counts)[:, None] * np.log1p(-rates)
    return np.exp(ways[:, None] + np.where(np.isnan(logs), 0.0, logs))


def wilson(n: int) -> tuple[Array, Array]:
    """Wilson's score interval, of each count: the one that evaluations have."""
    ends = np.array([intervals.wilson(count, n) for count in range(n + 1)])
    return ends[:, 0], ends[:, 1]


def agresti_coull(n: int) -> tuple[Array, Array]:
    """The normal interval with z^2 / 2 successes and failures added (Agresti and Coull 1998)."""
    total = n + intervals.Z95**2
    rate = (np.arange(n + 1) + intervals.Z95**2 / 2) / total
    half = intervals.Z95 * np.sqrt(rate * (1 - rate) / total)
    return np.maximum(rate - half, 0.0), np.minimum(rate + half, 1.0)


def jeffreys(n: int) -> tuple[Array, Array]:
    """Equal tails of Beta(k + 1/2, n - k + 1/2), to 0 and 1 at the ends (Brown et al. 2001)."""
    angle = np.linspace(0, math.pi / 2, _GRID)[1:-1]  # the density of the arcsine of the root
    low, high = np.zeros(n + 1), np.ones(n + 1)
    for count in range(n + 1):
        logs = 2 * count * np.log(np.sin(angle)) + 2 * (n - count) * np.log(np.cos(angle))
        density = np.exp(logs - logs.max())
        below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
        ends = np.sin(np.interp([0.025, 0.975], below / below[-1], angle)) ** 2
        low[count], high[count] = ends
    low[0], high[n] = 0.0, 1.0
    return low, high


def mid_p(n: int) -> tuple[Array, Array]:
    """Clopper and Pearson's interval, with half of the chance of the count (Lancaster 1961)."""
    return _tails(n, 0.5)


def clopper_pearson(n: int) -> tuple[Array, Array]:
    """The interval whose coverage is nowhere below .95 (Clopper and Pearson 1934)."""
    return _tails(n, 1.0)


def _tails(n: int, own: float) -> tuple[Array, Array]:
    """Return the rates at which a count or more has a chance of 2.5%, and the mirror image."""
    counts, low, high = np.arange(n + 1), np.zeros(n + 1), np.ones(n + 1)
    for _ in range(50):
        middle = (low + high) / 2
        chance = chances(n, middle)  # (counts, middles): the tail of each column's own count
        above = np.where(counts[:, None] > counts, chance, 0.0).sum(0) + own * chance.diagonal()
        low, high = np.where(above < 0.025, middle, low), np.where(above < 0.025, high, middle)
    lowest = np.where(counts == 0, 0.0, (low + high) / 2)
    return lowest, 1 - lowest[::-1]


METHODS: dict[str, Method] = {
    "Wilson": wilson,
    "Jeffreys": jeffreys,
    "mid-p": mid_p,
    "Agresti-Coull": agresti_coull,
    "Clopper-Pearson": clopper_pearson,
}


def coverage(ends: tuple[Array, Array], n: int, rates: Array = RATES) -> Array:
    """Return the chance at each rate that the interval of the count holds it."""
    low, high = (end[:, None] for end in ends)
    return np.asarray((chances(n, rates) * ((low <= rates) & (rates <= high))).sum(0))


def stretches(n: int, rate: float) -> Array:
    """Return the chance of the counts from i to j, (n + 1, n + 1); 0 where j is below i."""
    below = np.concatenate([[0.0], np.cumsum(chances(n, np.array([rate]))[:, 0])])
    return np.asarray(np.triu(below[None, 1:] - below[:-1, None]))


def nearest(n: int, rate: float) -> float:
    """Return the coverage nearest to .95 that an interval with rising ends can have at a rate."""
    possible = stretches(n, rate).ravel()
    return float(possible[np.abs(possible - 0.95).argmin()])


def most_near(n: int, rates: Array = RATES, near: float = NEAR) -> float:
    """Return the largest share of rates at which one interval with rising ends can be near .95.

    By dynamic programming over the stretches: with a higher rate neither end of it moves down.
    """
    best = np.zeros((n + 1, n + 1))
    for rate in rates:
        best = np.maximum.accumulate(np.maximum.accumulate(best, 0), 1)
        best += np.abs(stretches(n, float(rate)) - 0.95) <= near
    return float(best.max() / len(rates))


def beta_binomial(k: int, rate: float, concentration: float) -> Array:
    """Return the chance of each number of ``k`` answers that pass, (k + 1,).

    The problem's pass rate has a Beta distribution with this sum of parameters; infinite: none.
    """
    if math.isinf(concentration):
        return chances(k, np.array([rate]))[:, 0]
    a, b = rate * concentration, (1 - rate) * concentration

    def log_beta(x: float, y: float) -> float:
        return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)

    ways = [math.comb(k, one) for one in range(k + 1)]
    logs = [log_beta(a + one, b + k - one) - log_beta(a, b) for one in range(k + 1)]
    return np.array(ways) * np.exp(logs)


def several(n: int, k: int, rate: float, concentration: float) -> float:
    """Return the coverage of the interval of ``n`` problems with ``k`` answers each.

    It depends on the sum of the counts and that of their squares, whose joint distribution is the
    n-th convolution of one problem's.
    """
    one = np.zeros((n * k + 1, n * k * k + 1))
    one[np.arange(k + 1), np.arange(k + 1) ** 2] = beta_binomial(k, rate, concentration)
    chance = np.fft.irfft2(np.fft.rfft2(one) ** n, s=one.shape)
    sums, squares = (each.astype(float) for each in np.nonzero(chance > 1e-13))
    mean = sums / (n * k)
    low, high = intervals.of_moments(mean, np.maximum(squares / k**2 - n * mean**2, 0.0), n)
    held = (low <= rate) & (rate <= high)
    return float(chance[chance > 1e-13][held].sum())


def main() -> None:
    """Print what the table of docs/benchmarks.md holds."""
    for n in PROBLEMS:
        print(f"{n} problems, pass rates from .02 to .98")
        for name, method in METHODS.items():
            ends = method(n)
            found = coverage(ends, n)
            width = (chances(n, RATES) * (ends[1] - ends[0])[:, None]).sum(0).mean()
            print(
                f"    {name:16s} mean {found.mean():.3f}  lowest {found.min():.3f} (rate "
                f"{RATES[found.argmin()]:g})  highest {found.max():.3f}  from .95 on average "
                f"{np.abs(found - 0.95).mean():.4f}  within 1.5 points "
                f"{(np.abs(found - 0.95) <= NEAR).mean():.3f}  below .935 "
                f"{(found < 0.95 - NEAR).mean():.3f}  width {width:.4f}"
            )
        if n <= 100:  # above, Wilson's is near everywhere
            single = np.array([nearest(n, float(rate)) for rate in RATES])
            far = np.abs(single - 0.95)
            print(
                f"    possible: at each rate by itself {(far <= NEAR).mean():.3f}, by one interval "
                f"{most_near(n):.3f}; the farthest is {single[far.argmax()]:.3f} at rate "
                f"{RATES[far.argmax()]:g}"
            )
    for n, k in SEVERAL:
        for concentration in (math.inf, 10.0, 1.0, 0.3):
            found = np.array([several(n, k, rate, concentration) for rate in HALF])
            print(
                f"{n} problems x {k}, difficulties a + b = {concentration:g}: mean "
                f"{found.mean():.3f}  lowest {found.min():.3f} (rate {HALF[found.argmin()]:g})  "
                f"highest {found.max():.3f} (rate {HALF[found.argmax()]:g})  within 1.5 points "
                f"{(np.abs(found - 0.95) <= NEAR).mean():.2f}"
            )
    for rate in (0.03, 0.97):
        least = sorted(stretches(15, rate).ravel(), key=lambda one: abs(one - 0.95))[:2]
        print(f"15 problems, rate {rate}: nearest possible {least[0]:.3f} and {least[1]:.3f}")


if __name__ == "__main__":
    main()
