import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlvr_core.advantages import (
    Batch,
    Center,
    Group,
    GroupStdDdof1,
    Rloo,
    advantages,
    normalise_then_sum,
)
from rlvr_core.api import RunError

NAN = float("nan")
FORMULAS = {
    "group": Group,
    "center": Center,
    "batch": Batch,
    "rloo": Rloo,
    "group_std_ddof1": GroupStdDdof1,
}
TWO_GROUPS = ([1, 0, 0, 0, 2, 4], [0, 0, 0, 0, 1, 1])


def run(rewards, groups, mode="group"):
    return advantages(
        torch.tensor(rewards, dtype=torch.float64), torch.tensor(groups), FORMULAS[mode].formula
    )


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # group 0: mean 1/4, variance 3/16; group 1: mean 3, variance 1
        ("group", [math.sqrt(3), *[-1 / math.sqrt(3)] * 3, -1, 1]),
        ("center", [0.75, -0.25, -0.25, -0.25, -1, 1]),
        ("rloo", [1, -1 / 3, -1 / 3, -1 / 3, -2, 2]),
        # sample variance 1/4 and 2
        (
            "group_std_ddof1",
            [0.75 / 0.5001, *[-0.25 / 0.5001] * 3]
            + [sign / (math.sqrt(2) + 1e-4) for sign in (-1, 1)],
        ),
        # all six: mean 7/6, mean square 21/6, variance 77/36
        ("batch", [x / (math.sqrt(77) / 6 + 1e-4) for x in (0.75, -0.25, -0.25, -0.25, -1, 1)]),
    ],
)
def test_each_mode_by_hand(mode, expected):
    result = run(*TWO_GROUPS, mode).advantage_N
    torch.testing.assert_close(result, torch.tensor(expected, dtype=torch.float64))


def test_group_std_ddof1_has_trls_pinned_numbers():
    result = run([1, 0, 0, 0], [7, 7, 7, 7], "group_std_ddof1").advantage_N
    assert [round(x, 4) for x in result.tolist()] == [1.4997, -0.4999, -0.4999, -0.4999]


@pytest.mark.parametrize("mode", ["group", "center", "batch", "rloo", "group_std_ddof1"])
def test_unscorable_takes_no_part(mode):
    with_nan = run([1, NAN, 0, 0, 0, 4, NAN, 2], [3, 3, 3, 3, 3, 1, 1, 1], mode)
    without = run([1, 0, 0, 0, 4, 2], [3, 3, 3, 3, 1, 1], mode)
    assert with_nan.scorable_N.tolist() == [True, False, True, True, True, True, False, True]
    torch.testing.assert_close(with_nan.advantage_N[with_nan.scorable_N], without.advantage_N)
    assert with_nan.advantage_N[~with_nan.scorable_N].tolist() == [0, 0]
    assert not with_nan.lone_N.any()


@pytest.mark.parametrize("mode", ["group", "center", "batch", "rloo", "group_std_ddof1"])
def test_t12_group_of_one_has_advantage_0_and_is_counted(mode):
    result = run([1.0, NAN, 5.0, NAN, NAN, 0.0, 1.0], [0, 0, 1, 2, 2, 3, 3], mode)
    assert result.lone_N.tolist() == [True] * 5 + [False] * 2
    assert result.advantage_N[:5].tolist() == [0, 0, 0, 0, 0]
    assert result.advantage_N[5] < 0 < result.advantage_N[6]


@pytest.mark.parametrize("mode", ["group", "center", "batch", "rloo", "group_std_ddof1"])
@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e9 + 0.1, -7.7])
def test_equal_rewards_give_exactly_0(mode, reward):
    result = run([reward] * 7 + [0.0, 1.0], [0] * 7 + [1, 1], mode)
    assert result.advantage_N[:7].tolist() == [0] * 7


@given(
    st.lists(
        st.tuples(st.integers(-3, 3), st.one_of(st.floats(-10, 10), st.just(NAN))), min_size=1
    ),
    st.randoms(use_true_random=False),
    st.sampled_from(["group", "center", "batch", "rloo", "group_std_ddof1"]),
)
def test_order_of_rows_does_not_matter_and_nothing_is_nan(rows, random, mode):
    order = list(range(len(rows)))
    random.shuffle(order)
    groups, rewards = zip(*rows, strict=True)
    straight = run(rewards, groups, mode)
    mixed = run([rewards[i] for i in order], [groups[i] for i in order], mode)
    assert straight.advantage_N.isfinite().all()
    torch.testing.assert_close(straight.advantage_N[order], mixed.advantage_N, rtol=1e-6, atol=1e-6)
    assert torch.equal(straight.lone_N[order], mixed.lone_N)


@pytest.mark.parametrize("reward", [math.inf, -math.inf, 1e101])
def test_infinite_reward_is_refused_with_its_row(reward):
    with pytest.raises(RunError, match=r"\[1\]"):
        run([0.0, reward], [0, 0])


# -- several rewards -----------------------------------------------------------------------------


def combined(scores, weights, groups, mode="group"):
    return normalise_then_sum(
        torch.tensor(scores, dtype=torch.float64),
        weights,
        torch.tensor(groups),
        FORMULAS[mode].formula,
    )


def test_normalise_then_sum_by_hand():
    # first reward: +-1 in the first group, nothing in the second; second reward: +-1 in both
    scores = [[4, 0.0], [0, 0.2], [7, 0.3], [7, 0.1]]
    total = [1 - 0.5, -1 + 0.5, 0.5, -0.5]
    std = 0.5
    result = combined(scores, [1.0, 0.5], [0, 0, 1, 1])
    expected = torch.tensor([x / (std + 1e-4) for x in total], dtype=torch.float64)
    torch.testing.assert_close(result.advantage_N, expected)


def test_normalise_then_sum_in_trl_mode_is_trls_formula():
    R_NK = torch.tensor(
        [[1, 0.2], [0, 0.8], [0, 0.1], [1, 0.4], [1, 0.5], [1, 0.4], [1, 0.3], [1, 0.1]],
        dtype=torch.float64,
    )
    grouped = R_NK.view(2, 4, 2)
    each = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)
    total_N = (each.view(8, 2) * torch.tensor([1.0, 0.5])).sum(1)
    expected = (total_N - total_N.mean()) / (total_N.std() + 1e-4)
    result = combined(R_NK.tolist(), [1.0, 0.5], [0] * 4 + [1] * 4, "group_std_ddof1")
    torch.testing.assert_close(result.advantage_N, expected)


def test_normalise_then_sum_does_not_care_how_wide_a_reward_spreads():
    scores = [[1, 0.2], [0, 0.8], [1, 0.1], [0, 0.4]]
    wide = [[a, 1000 * b] for a, b in scores]
    one, other = (combined(s, [1.0, 1.0], [0, 0, 0, 0]).advantage_N for s in (scores, wide))
    torch.testing.assert_close(one, other)


def test_normalise_then_sum_leaves_out_what_lacks_a_weighed_score():
    scores = [[1, NAN], [0, 0.5], [1, 0.2], [0, 0.9]]
    partial = combined(scores, [1.0, 1.0], [0, 0, 0, 0])
    without = combined(scores[1:], [1.0, 1.0], [0, 0, 0])
    assert partial.scorable_N.tolist() == [False, True, True, True]
    assert partial.advantage_N[0] == 0
    torch.testing.assert_close(partial.advantage_N[1:], without.advantage_N)
    unweighed = combined(scores, [1.0, 0.0], [0, 0, 0, 0])
    assert unweighed.scorable_N.all()
    torch.testing.assert_close(
        unweighed.advantage_N, torch.tensor([1, -1, 1, -1], dtype=torch.float64) / 1.0001
    )


def test_normalise_then_sum_of_a_lone_completion_or_of_nothing_is_0():
    lone = combined([[1, 1], [0, 2], [5, 5]], [1.0, 1.0], [0, 0, 1])
    assert lone.lone_N.tolist() == [False, False, True]
    assert lone.advantage_N[2] == 0
    assert combined([[1, 1], [NAN, 2]], [1.0, 1.0], [0, 0]).advantage_N.tolist() == [0, 0]
    assert combined([[1, 1], [0, 2]], [0.0, 0.0], [0, 0]).advantage_N.tolist() == [0, 0]
