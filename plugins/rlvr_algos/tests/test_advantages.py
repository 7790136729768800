"""The estimators against enumeration of all outcomes, and against loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from rlvr_algos.advantages import MaxRL, PassAtK, ReinforcePlusPlus
from rlvr_core.algorithm.estimate import Estimator, judged_step
from rlvr_core.api import Completion, Group, Judged, Problem, RunError, Verdict


def maxrl():
    return Estimator("maxrl", MaxRL(MaxRL.Config()))


def pass_at_k(**options):
    return Estimator("pass_at_k", PassAtK(PassAtK.Config(**options)))


def reinforce_plus_plus(**options):
    made = ReinforcePlusPlus(ReinforcePlusPlus.Config(**options))
    return Estimator("reinforce_plus_plus", made)


def group(rewards, place=0, masks=None):
    """Judged completions with these rewards; None has no reward."""
    members = []
    for i, reward in enumerate(rewards):
        mask = masks[i] if masks else (True, True)
        n = len(mask)
        done = Completion((1,), tuple(range(n)), (-1.0,) * n, tuple(mask), "", "stop")
        verdict = Verdict(None, "unscorable") if reward is None else Verdict(reward)
        members.append(Judged(done, {"r": verdict}, reward, None))
    return Group(Problem(f"p{place}", "?", "r", {}, "toy"), tuple(members), 0)


def of(made, *groups, kl=None):
    return made.of(judged_step(groups, [1.0], kl))


def expected_gradient(advantages_of, probabilities, rewards, n):
    """E[1/n sum A_i grad log p(x_i)] over all draws of n from a softmax, in its logits."""
    total = np.zeros(len(probabilities))
    for drawn in itertools.product(range(len(probabilities)), repeat=n):
        chance = math.prod(probabilities[x] for x in drawn)
        advantage_n = advantages_of([rewards[x] for x in drawn])
        for x, a in zip(drawn, advantage_n, strict=True):
            score = -np.array(probabilities)
            score[x] += 1
            total += chance * a * score / n
    return total


def softmax(logits):
    weights = np.exp(logits - np.max(logits))
    return weights / weights.sum()


def numeric_gradient(objective, logits, eps=1e-6):
    """Central differences of an objective of the probabilities."""
    found = []
    for i in range(len(logits)):
        up, down = np.array(logits), np.array(logits)
        up[i] += eps
        down[i] -= eps
        found.append((objective(softmax(up)) - objective(softmax(down))) / (2 * eps))
    return np.array(found)


LOGITS = np.array([0.3, -0.7, 0.1])


@pytest.mark.parametrize("n", [2, 3, 5])
def test_maxrl_has_the_gradient_of_the_log_likelihood_up_to_order_n_minus_1(n):
    rewards = [1.0, 0.0, 0.0]
    made = maxrl()
    ours = expected_gradient(
        lambda drawn: of(made, group(drawn)).row_N, softmax(LOGITS), rewards, n
    )
    theirs = numeric_gradient(lambda p: -sum((1 - p[0]) ** k / k for k in range(1, n)), LOGITS)
    assert ours == pytest.approx(theirs, abs=1e-8)


def test_maxrl_by_hand():
    found = of(maxrl(), group([1.0, 0.0, 0.0, 0.0]), group([0.0, 0.0], 1)).row_N
    assert found.tolist() == [3.0, -1.0, -1.0, -1.0, 0.0, 0.0]
    with pytest.raises(RunError, match=r"maxrl: problem p0 .* reward -0\.5"):
        of(maxrl(), group([1.0, -0.5]))


@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 2), (4, 2), (4, 3), (4, 4)])
@pytest.mark.parametrize("rewards", [[1.0, 0.0, 0.0], [0.9, 0.2, 0.5]], ids=["binary", "graded"])
def test_unbiased_pass_at_k_has_the_gradient_of_the_expected_best(n, k, rewards):
    made = pass_at_k(k=k, form="unbiased")
    ours = expected_gradient(
        lambda drawn: of(made, group(drawn)).row_N, softmax(LOGITS), rewards, n
    )

    def best(p):
        every = itertools.product(range(3), repeat=k)
        return sum(math.prod(p[x] for x in one) * max(rewards[x] for x in one) for one in every)

    assert ours == pytest.approx(numeric_gradient(best, LOGITS), abs=1e-8)


def by_subsets(rewards, k):
    """Chen et al. as written: the mean advantage of the subsets that a completion is in."""
    n = len(rewards)
    subsets = list(itertools.combinations(range(n), k))
    best = np.array([max(rewards[i] for i in one) for one in subsets])
    if best.std() < 1e-6:
        return np.zeros(n)
    advantage = (best - best.mean()) / best.std()
    return np.array(
        [np.mean([a for a, s in zip(advantage, subsets, strict=True) if i in s]) for i in range(n)]
    )


@pytest.mark.parametrize("k", [1, 2, 3, 4, 6])
@pytest.mark.parametrize(
    "rewards",
    [
        [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
        [0.5, 0.5, -1.0, 2.0, 0.0, 2.0, 0.3],
        [1.0] * 7,
        [0.1] * 7,
    ],
)
def test_normalised_pass_at_k_is_that_of_all_subsets(k, rewards):
    found = of(pass_at_k(k=k), group(rewards)).row_N
    assert found == pytest.approx(by_subsets(rewards, k), abs=1e-12)


def test_normalised_pass_at_k_has_the_closed_form_of_the_paper():
    n, wrong, k = 8, 5, 4
    mean = 1 - math.comb(wrong, k) / math.comb(n, k)
    std = math.sqrt(mean * (1 - mean))
    good = (1 - mean) / std
    bad = (1 - mean - math.comb(wrong - 1, k - 1) / math.comb(n - 1, k - 1)) / std
    found = of(pass_at_k(k=k), group([1.0] * 3 + [0.0] * 5)).row_N
    assert found == pytest.approx([good] * 3 + [bad] * 5, abs=1e-12)


def test_a_group_of_fewer_than_k_has_advantage_0():
    assert of(pass_at_k(k=4), group([1.0, 0.0, None])).row_N.tolist() == [0, 0, 0]
    assert pass_at_k(k=4).component.traits.min_completions == 5
    assert pass_at_k(k=4, form="unbiased").component.traits.min_completions == 4


@pytest.mark.parametrize("baseline", [False, True])
def test_reinforce_plus_plus_by_loops(baseline):
    """Returns token by token, and their mean and deviation over every loss token of the step."""
    draw = np.random.default_rng(0)
    masks = [[True, False, True], [True], [True] * 4, [False, True], [True, True]]
    rewards = [[1.0, 0.0, 0.5], [None, 2.0]]
    groups = [group(rewards[0], 0, masks[:3]), group(rewards[1], 1, masks[3:])]
    kl = [np.where(mask, draw.normal(size=len(mask)), 0.0) for mask in masks]
    made = reinforce_plus_plus(beta=0.3, group_baseline=baseline)
    assert made.component.traits.per_token
    found = of(made, *groups, kl=kl)

    flat = [r for some in rewards for r in some]
    if baseline:
        flat = [r - 0.5 for r in flat[:3]] + [None, 0.0]
    returns = {}
    for i, mask in enumerate(masks):
        for t, counts in enumerate(mask):
            if counts and flat[i] is not None:
                later = sum(kl[i][s] for s in range(t, len(mask)) if mask[s])
                returns[i, t] = flat[i] - 0.3 * later
    mean = sum(returns.values()) / len(returns)
    std = math.sqrt(sum((g - mean) ** 2 for g in returns.values()) / len(returns))
    for i, mask in enumerate(masks):
        expected = [(returns[i, t] - mean) / std if (i, t) in returns else 0.0
                    for t in range(len(mask))]  # fmt: skip
        assert found.token_N[i] == pytest.approx(expected, abs=1e-12)
        assert found.row_N[i] == pytest.approx(sum(expected) / sum(mask), abs=1e-12)
    assert found.metrics["advantage/return_mean"] == pytest.approx(mean)
    assert found.metrics["advantage/return_std"] == pytest.approx(std)


def test_reinforce_plus_plus_without_kl_asks_for_no_reference():
    made = reinforce_plus_plus(beta=0.0)
    assert not made.component.traits.needs_reference_kl
    assert made.component.traits.min_completions == 1
    found = of(made, group([1.0]), group([0.0], 1))
    assert [one.tolist() for one in found.token_N] == [[1.0, 1.0], [-1.0, -1.0]]
    assert all(one.tolist() == [0, 0] for one in of(made, group([1.0, 1.0])).token_N)
