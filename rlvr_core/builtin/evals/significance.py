"""Tests of paired differences, and the correction for making several of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


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
    sizes = [abs(one) for one in differences if one]
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
