"""False alarms and delays of the tests behind ``guards/collapse``, by simulation of their counts.

Many runs are simulated beside each other. A problem's own pass rate is drawn for each group from a
beta distribution, so completions of a group depend on each other as they do in training.
"""

import math

import numpy as np
import pytest

from rlvr_guards.betting import FallTest
from rlvr_guards.collapse import ODDS, Collapse

GROUPS, N = 16, 8
SPREAD = 2.0
"""Concentration of the beta distribution."""
BEGIN = 100
"""Step at which a fault begins."""


def beta_binomial(mean, n, spread):
    """Probabilities of 0 to n successes, the rate being beta-distributed."""
    if mean in (0.0, 1.0):
        return np.eye(n + 1)[int(n * mean)]
    a, b = spread * mean, spread * (1 - mean)
    logs = [
        math.log(math.comb(n, k))
        + (math.lgamma(a + k) + math.lgamma(b + n - k) - math.lgamma(a + b + n))
        - (math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b))
        for k in range(n + 1)
    ]
    chance_V = np.exp(logs)
    return chance_V / chance_V.sum()


def first_alarms(course, runs, steps, seed):
    """The first step at which the test stops each run; ``steps`` where it does not."""
    test = FallTest(Collapse.Config().max_drop, ODDS["pass"])
    rng = np.random.default_rng(seed)
    value_V = np.arange(N + 1) / N
    first_R = np.full(runs, steps)
    for step in range(steps):
        chance_V = beta_binomial(course(step), N, SPREAD)
        evidence_R = test.add(value_V, rng.multinomial(GROUPS, chance_V, size=runs).astype(float))
        first_R = np.where((evidence_R >= 1) & (first_R == steps), step, first_R)
    return first_R


HEALTHY = {
    "constant": lambda step: 1.0,
    "rises to the double": lambda step: 1 + min(1.0, step / 800),
    "falls by a quarter": lambda step: 1 - 0.25 * min(1.0, step / 800),
    "waves of 15 %": lambda step: 1 - 0.15 * (step // 50 % 2),
}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_few_short_runs_have_no_false_alarm(name, rate):
    course = HEALTHY[name]
    first_R = first_alarms(lambda step: rate * course(step), runs=10, steps=150, seed=len(name))
    assert (first_R == 150).all()


def test_a_fall_to_nothing_is_found_in_five_steps():
    first_R = first_alarms(lambda step: 0.5 if step < BEGIN else 0.0, runs=50, steps=150, seed=1)
    assert np.median(first_R) - BEGIN + 1 == 5
    assert (first_R < 150).all()


def test_beta_binomial_by_hand():
    # a uniform rate gives each number of successes alike
    assert beta_binomial(0.5, 4, 2.0).tolist() == pytest.approx([0.2] * 5)
    chance = beta_binomial(0.1, 8, 2.0)
    assert (chance * np.arange(9)).sum() / 8 == pytest.approx(0.1)
