"""Exact coverage of intervals of a pass rate, against mpmath, hand and every possible interval."""

import itertools
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import interval_exact as exact

sys.path.pop(0)


def test_chances_are_binomial():
    # three problems at rate .2: .8^3, 3 * .2 * .8^2, 3 * .2^2 * .8, .2^3
    assert exact.chances(3, np.array([0.2]))[:, 0] == pytest.approx([0.512, 0.384, 0.096, 0.008])
    assert exact.chances(2, np.array([0.0, 1.0])).tolist() == [[1, 0], [0, 0], [0, 1]]


def tail(n, count, rate, own):
    """Chance of more than the count, and of its own a part."""
    terms = [mpmath.binomial(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(count, n + 1)]
    return float(own * terms[0] + sum(terms[1:]))


@pytest.mark.parametrize(("method", "own"), [(exact.mid_p, 0.5), (exact.clopper_pearson, 1.0)])
def test_tails_are_those_of_mpmath(method, own):
    low, high = method(12)
    assert (low[0], high[12]) == (0.0, 1.0)
    for count in (1, 5, 12):
        assert tail(12, count, low[count], own) == pytest.approx(0.025, rel=1e-6)
        assert high[12 - count] == pytest.approx(1 - low[count])


def test_jeffreys_is_that_of_mpmath():
    low, high = exact.jeffreys(30)
    assert (low[0], high[30]) == (0.0, 1.0)
    for count in (1, 7, 29):
        for end, below in ((low[count], 0.025), (high[count], 0.975)):
            found = mpmath.betainc(count + 0.5, 30 - count + 0.5, 0, end, regularized=True)
            assert float(found) == pytest.approx(below, abs=2e-5)


def test_agresti_and_coull_by_hand():
    # 8 of 10: 9.920729 of 13.841459, rate .716740; half 1.959964 * sqrt(.2030238 / 13.841459)
    low, high = exact.agresti_coull(10)
    assert (low[8], high[8]) == pytest.approx((0.479369, 0.954111), abs=1e-5)


def test_coverage_is_the_share_of_drawn_counts():
    rng, n = np.random.default_rng(0), 15
    low, high = exact.wilson(n)
    for rate in (0.1, 0.963):
        drawn = rng.binomial(n, rate, 200_000)
        covered = ((low[drawn] <= rate) & (rate <= high[drawn])).mean()
        found = exact.coverage((low, high), n, np.array([rate]))
        assert found[0] == pytest.approx(covered, abs=0.003)


@pytest.mark.parametrize("rate", [0.03, 0.97])
def test_no_interval_is_near_at_some_rates(rate):
    # of 15 at .97 all pass in .6333, 14 in .2938, 13 in .0636: .9270 or .9906, nothing between
    assert exact.nearest(15, rate) == pytest.approx(0.6333 + 0.2938, abs=1e-4)
    assert exact.most_near(15, np.array([rate])) == 0.0


def test_the_most_that_one_interval_can_do_is_that_of_all_intervals():
    n, rates, near = 5, np.array([0.07, 0.17, 0.44, 0.5]), 0.015
    chances = exact.chances(n, rates)
    best = 0
    kinds = [(i, j) for i in range(n + 1) for j in range(i, n + 1)]
    for held in itertools.product(kinds, repeat=len(rates)):  # counts held at each rate
        rising = all(a <= c and b <= d for (a, b), (c, d) in itertools.pairwise(held))
        if rising:
            found = [chances[i : j + 1, at].sum() for at, (i, j) in enumerate(held)]
            best = max(best, sum(abs(one - 0.95) <= near for one in found))
    assert best == 3  # though each rate by itself allows it
    assert all(abs(exact.nearest(n, rate) - 0.95) <= near for rate in rates)
    assert exact.most_near(n, rates, near) == best / len(rates)


def test_answers_of_a_problem_are_beta_binomial():
    # Beta(1, 1): each number of passes is as likely; by hand for Beta(1, 3) and 2 answers:
    # 3 * 4 / (4 * 5), 2 * 1 * 3 / 20, 1 * 2 / 20
    assert exact.beta_binomial(4, 0.5, 2.0) == pytest.approx([0.2] * 5)
    assert exact.beta_binomial(2, 0.25, 4.0) == pytest.approx([0.6, 0.3, 0.1])
    assert exact.beta_binomial(2, 0.25, np.inf) == pytest.approx([0.5625, 0.375, 0.0625])


@pytest.mark.parametrize("concentration", [1.0, np.inf])
def test_coverage_of_several_answers_is_that_of_all_outcomes(concentration):
    n, k, rate, found = 3, 2, 0.3, 0.0
    chance = exact.beta_binomial(k, rate, concentration)
    for counts in itertools.product(range(k + 1), repeat=n):
        low, high = exact.intervals.bounded_mean(np.array(counts) / k)
        found += np.prod(chance[list(counts)]) * (low <= rate <= high)
    assert exact.several(n, k, rate, concentration) == pytest.approx(found)
