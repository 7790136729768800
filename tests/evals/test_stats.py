import itertools
import math
import random
import statistics

import pytest

from rlvr_core.builtin.evals.stats import (
    BLOCKS,
    bootstrap,
    estimate,
    jackknife,
    mcnemar,
    pass_at_k,
    wilson,
)


def test_wilson_by_hand():
    # p = .8, n = 10, z^2 = 3.8414588: (p + z^2/20 -+ z sqrt(.16/10 + z^2/400)) / (1 + z^2/10)
    low, high = wilson(8, 10)
    assert (low, high) == (pytest.approx(0.490162, abs=1e-6), pytest.approx(0.943318, abs=1e-6))
    # no success: the upper end is z^2 / (n + z^2)
    assert wilson(0, 10) == (0.0, pytest.approx(3.8414588 / 13.8414588))
    assert wilson(10, 10) == (pytest.approx(10 / 13.8414588), 1.0)


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(5, 1, 2 * (1 + 6) / 64), (1, 5, 14 / 64), (10, 0, 2 / 1024), (3, 3, 1.0), (0, 0, 1.0)],
)
def test_mcnemar_by_hand(gained, lost, p):
    assert mcnemar(gained, lost) == pytest.approx(p)


def test_mcnemar_of_many_pairs_does_not_overflow():
    assert 0 < mcnemar(1200, 900) < 1e-10


@pytest.mark.parametrize("n", [1, 4, 7])
def test_t77_pass_at_k_is_the_share_of_all_subsets(n):
    for correct, k in itertools.product(range(n + 1), range(1, n + 1)):
        answers = [i < correct for i in range(n)]
        subsets = list(itertools.combinations(answers, k))
        assert pass_at_k(n, correct, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_refuses_what_cannot_be_told():
    for n, correct, k in [(4, 2, 5), (4, 2, 0), (4, 5, 1), (4, -1, 1)]:
        with pytest.raises(ValueError, match="cannot be told"):
            pass_at_k(n, correct, k)
    assert pass_at_k(512, 1, 256) == 0.5


def test_bootstrap_is_near_the_normal_interval_and_repeats_itself():
    rng = random.Random(1)
    values = [rng.gauss(3, 2) for _ in range(400)]
    half = 1.96 * statistics.stdev(values) / math.sqrt(400)
    low, high = bootstrap(values)
    assert low == pytest.approx(statistics.fmean(values) - half, abs=0.02)
    assert high == pytest.approx(statistics.fmean(values) + half, abs=0.02)
    assert bootstrap(values) == (low, high)


def test_estimate_chooses_the_interval():
    rates = estimate([1, 0, 1, 1, 1, 1, 1, 1, 0, 1])
    assert (rates.value, rates.n, rates.method) == (0.8, 10, "wilson")
    assert estimate([0.5, 1.0, 0.25]).method == "bootstrap"
    # a bootstrap of equal values would claim to be certain
    assert estimate([0.5, 0.5]).low is None
    assert estimate([1.0, 1.0]).low == pytest.approx(2 / 5.8414588)
    assert estimate([]).value is None


def test_jackknife_of_a_mean_is_its_standard_error():
    values = [math.sin(i) for i in range(BLOCKS)]
    without = [(sum(values) - one) / (BLOCKS - 1) for one in values]
    found = jackknife(statistics.fmean(values), BLOCKS, without)
    half = 2.093024 * statistics.stdev(values) / math.sqrt(BLOCKS)
    assert found.high - found.value == pytest.approx(half, rel=1e-6)
    assert found.value - found.low == pytest.approx(half, rel=1e-6)
    assert jackknife(1.0, 3, [1.0] * BLOCKS).low is None
    assert jackknife(1.0, 100, [*without[1:], None]).low is None
