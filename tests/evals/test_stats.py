import math
import random
import statistics

import pytest

from rlvr_core.stats.estimates import (
    BLOCKS,
    estimate,
    jackknife,
)
from rlvr_core.stats.significance import paired_difference


def test_a_mean_of_many_values_has_the_normal_interval():
    rng = random.Random(1)
    values = [rng.gauss(3, 2) for _ in range(400)]
    half = 1.96 * statistics.stdev(values) / math.sqrt(400)
    found = estimate(values)
    assert found.low == pytest.approx(statistics.fmean(values) - half, abs=0.02)
    assert found.high == pytest.approx(statistics.fmean(values) + half, abs=0.02)
    assert found.method == "t"
    assert estimate(values) == found


def test_estimate_chooses_the_interval():
    rates = estimate([1, 0, 1, 1, 1, 1, 1, 1, 0, 1])
    assert (rates.value, rates.n, rates.method) == (0.8, 10, "wilson")
    assert estimate([0.5, 1.0, 0.25]).method == "wilson"
    assert estimate([12.0, 40.0, 0.25]).method == "t"
    # equal values are not certain: of two, nearly everything is still possible
    half = estimate([0.5, 0.5])
    assert half.low < 0.05
    assert half.high > 0.95
    assert estimate([1.0, 1.0]).low == pytest.approx(2 / 5.8414588)
    assert estimate([0.25]).low == pytest.approx(0.014635, abs=1e-6)  # Wilson, n = 1
    assert estimate([7.0, 7.0]).low is None  # of lengths nothing says how far they can go
    assert estimate([7.0]).low is None
    assert estimate([]).value is None


def test_paired_difference_by_hand():
    # changes 1, -1, 1 and nine 0: mean 1/12, squares 3 - 12/144 = 35/12; three changed, by 1 each;
    # the assumed pair adds 1 * 2 / (1 + 3); variance (35/12 + .5) / 11; t of 11 degrees is 2.200985
    found = paired_difference([0, 1, 0] + [1] * 9, [1, 0, 1] + [1] * 9)
    half = 2.200985 * math.sqrt((35 / 12 + 0.5) / 11 / 12)
    assert found.value == pytest.approx(1 / 12)
    assert (found.low, found.high) == pytest.approx((1 / 12 - half, 1 / 12 + half), abs=1e-6)
    assert (found.n, found.method) == (12, "t")


def test_a_difference_of_nothing_is_not_certain():
    # 30 problems, none changed: t of 29 degrees times sqrt(2 / 29 / 30), near 3 / 30
    none = paired_difference([1.0] * 30, [1.0] * 30)
    assert (none.value, none.high) == (0.0, pytest.approx(2.045230 * math.sqrt(2 / 870), abs=1e-6))
    assert none.low == -none.high
    # 5 problems, all changed: not beyond 1
    assert paired_difference([0.0] * 5, [1.0] * 5).high == 1.0
    # scores in points of 0 to 10 have ten times the interval of 0 to 1
    small = paired_difference([0.0, 0.3, 0.5, 1.0], [0.2, 0.3, 1.0, 0.9])
    large = paired_difference([0.0, 3.0, 5.0, 10.0], [2.0, 3.0, 10.0, 9.0])
    assert [large.value, large.low, large.high] == pytest.approx(
        [10 * small.value, 10 * small.low, 10 * small.high]
    )
    assert paired_difference([0.0], [1.0]).low is None
    assert paired_difference([5.0, 5.0], [5.0, 5.0]).low is None
    assert paired_difference([], []).value is None


def test_jackknife_of_a_mean_is_its_standard_error():
    values = [math.sin(i) for i in range(BLOCKS)]
    without = [(sum(values) - one) / (BLOCKS - 1) for one in values]
    found = jackknife(statistics.fmean(values), BLOCKS, without)
    half = 2.093024 * statistics.stdev(values) / math.sqrt(BLOCKS)
    assert found.high - found.value == pytest.approx(half, rel=1e-6)
    assert found.value - found.low == pytest.approx(half, rel=1e-6)
    assert jackknife(1.0, 3, [1.0] * BLOCKS).low is None
    assert jackknife(1.0, 100, [*without[1:], None]).low is None


def test_jackknife_of_a_rate_stays_in_its_range_and_is_not_certain():
    everything = jackknife(1.0, 100, [1.0] * BLOCKS)
    square = 2.093024**2  # t of 19 degrees; nothing varies, so the 100 problems count as they are
    assert (everything.low, everything.high) == (pytest.approx(100 / (100 + square)), 1.0)
    near = jackknife(0.99, 100, [0.99 + 0.01 * math.sin(i) for i in range(BLOCKS)])
    assert 0 < near.low < 0.99 < near.high <= 1
    assert jackknife(7.5, 100, [7.5] * BLOCKS).low is None
