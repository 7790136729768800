"""Intervals and tests of significance against SciPy, statsmodels and mpmath."""

import itertools

import mpmath
import numpy as np
import pytest

from benchmarks import interval_coverage as coverage
from rlvr_core.stats import intervals, significance
from rlvr_core.stats.intervals import t_quantile, wilson
from rlvr_core.stats.significance import holm, sign_flip_p


def test_wilson_by_hand():
    # p = .8, n = 10, z^2 = 3.8414588: (p + z^2/20 -+ z sqrt(.16/10 + z^2/400)) / (1 + z^2/10)
    low, high = wilson(8, 10)
    assert (low, high) == (pytest.approx(0.490162, abs=1e-6), pytest.approx(0.943318, abs=1e-6))
    # no success: the upper end is z^2 / (n + z^2)
    assert wilson(0, 10) == (0.0, pytest.approx(3.8414588 / 13.8414588))
    assert wilson(10, 10) == (pytest.approx(10 / 13.8414588), 1.0)


def test_wilson_is_that_of_statsmodels():
    # proportion_confint(3, 1000, method="wilson"), statsmodels 0.15
    assert wilson(3, 1000) == pytest.approx((0.0010207838811386195, 0.008783014053503176))


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 14, 29, 30, 99, 999, 1318])
def test_quantiles_of_t_are_those_of_the_incomplete_beta_function(degrees):
    t = t_quantile(degrees)
    outside = mpmath.betainc(
        degrees / 2, 0.5, 0, degrees / (degrees + mpmath.mpf(t) ** 2), regularized=True
    )
    assert float(outside) == pytest.approx(0.05, rel=1e-10)


@pytest.mark.parametrize(
    ("degrees", "t"),  # scipy.stats.t.ppf(.975, degrees), SciPy 1.17
    [(1, 12.706204736174694), (5, 2.5705818356363146), (29, 2.045229642132703)],
)
def test_quantiles_of_t_are_those_of_scipy(degrees, t):
    assert t_quantile(degrees) == pytest.approx(t, rel=1e-11)


def test_one_completion_a_problem_has_wilsons_interval():
    for passed in range(31):
        values = np.array([1.0] * passed + [0.0] * (30 - passed))
        assert [float(end) for end in intervals.bounded_mean(values)] == pytest.approx(
            wilson(passed, 30)
        )


def test_clustered_completions_by_hand():
    # mean 1/2, squares 1/2, largest 1: effect (1/2 + .075) / 1.075 = .534884, 7.478261 problems;
    # squared quantile 3.841459 + (3.182446^2 - 3.841459) * .465116 = 6.765413, a 7.478261th of it
    # .904677: half width sqrt(.904677 * (1/4 + .904677/4)) / 1.904677
    low, high = intervals.bounded_mean(np.array([0.5, 1.0, 0.0, 0.5]))
    assert (float(low), float(high)) == pytest.approx((0.155407, 0.844593), abs=1e-5)
    # the less the problems differ, the more the several completions tell
    alike, apart = np.array([0.25, 0.75] * 15), np.array([0.0, 1.0] * 15)
    widths = [float(high - low) for low, high in map(intervals.bounded_mean, (alike, apart))]
    assert widths[0] < 0.7 * widths[1]


def test_a_long_tail_moves_the_interval_up():
    # Hall (1992), by hand for n = 4: values 0, 0, 0, 4: mean 1, s = 2, m3 = 6, skewness 6/8 = .75,
    # a = .75/2; the ends are 1 - 3/a (cbrt(1 + a (-+3.182446 - a/6)) - 1)
    low, high = intervals.mean(np.array([0.0, 0.0, 0.0, 4.0]))
    a, ends = 0.375, []
    for t in (3.182446, -3.182446):
        inside = 1 + a * (t - a / 6)
        root = abs(inside) ** (1 / 3) * (1 if inside > 0 else -1)
        ends.append(1 - 3 / a * (root - 1))
    assert (float(low), float(high)) == pytest.approx(tuple(ends), abs=1e-5)
    assert high - 1 > 2 * (1 - low)


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(5, 1, 2 * (1 + 6) / 64), (1, 5, 14 / 64), (10, 0, 2 / 1024), (3, 3, 1.0), (0, 0, 1.0)],
)
def test_one_completion_a_problem_has_mcnemars_exact_test(gained, lost, p):
    assert sign_flip_p([1] * gained + [-1] * lost) == pytest.approx(p)


def test_a_test_of_many_pairs_does_not_overflow():
    # scipy.stats.binomtest(900, 2100).pvalue
    assert sign_flip_p([1] * 1200 + [-1] * 900) == pytest.approx(6.337277315775641e-11)


@pytest.mark.parametrize(
    ("differences", "p"),  # scipy.stats.permutation_test, "samples", every resample, SciPy 1.17
    [
        ([3, 1, 0], 0.5),
        ([-2, -2, -4, -4, -4, -3], 0.03125),
        ([3, 1, 4, 0, 1, 4, 2, 1, 0, 1], 0.0078125),
    ],
)
def test_sign_flips_are_those_of_scipy(differences, p):
    assert sign_flip_p(differences) == pytest.approx(p)


def test_sign_flips_are_all_counted():
    rng = np.random.default_rng(4)
    for size in range(1, 11):
        differences = rng.integers(-4, 6, size).tolist()
        seen = abs(sum(differences))
        signs = itertools.product((1, -1), repeat=size)
        sums = [abs(sum(s * d for s, d in zip(one, differences, strict=True))) for one in signs]
        assert sign_flip_p(differences) == pytest.approx(np.mean([one >= seen for one in sums]))


def test_holm_is_that_of_statsmodels():
    # multipletests([.01, .04, .03, .005, .9], method="holm"), statsmodels 0.15
    found = holm([0.01, 0.04, None, 0.03, 0.005, 0.9])
    assert found == [pytest.approx(p) if p else p for p in (0.04, 0.09, None, 0.09, 0.025, 0.9)]
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(("problems", "spare"), [(15, 0.02), (30, 0.02), (100, 0.012)])
def test_intervals_hold_the_truth_as_often_as_they_say(problems, spare):
    """benchmarks/interval_coverage.py, 500 repeats a setting with a fixed seed.

    The mean over pass rates and difficulties is near .95; no setting is far below. A percentile
    bootstrap has a mean of .71 to .84 at 15 problems, and single settings below .3.
    """
    for completions in (1, 4, 16):
        cell = coverage.Cell()
        rng = np.random.default_rng(completions)
        for setting, truth, values in coverage.rates(rng, problems, completions, 500):
            cell.add(setting, truth, *intervals.bounded_mean(values))
        assert abs(np.mean(cell.covered) - 0.95) < spare, cell.row()
        assert min(cell.covered) > 0.89, cell.row()
        cell = coverage.Cell()
        for setting, truth, values in coverage.pairs(rng, problems, completions, 500):
            cell.add(setting, truth, *significance.difference(values))
        assert np.mean(cell.covered) > 0.935, cell.row()
        assert min(cell.covered) > 0.87, cell.row()
    cell = coverage.Cell()
    for setting, truth, values in coverage.lengths(rng, problems, 500):
        cell.add(setting, truth, *intervals.mean(values))
    assert abs(np.mean(cell.covered) - 0.95) < spare, cell.row()
