from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_core.api import (
    Completion,
    ConfigError,
    DataError,
    Drop,
    Group,
    Judged,
    Keep,
    Problem,
    Source,
    Verdict,
)
from rlvr_core.config.model import TrainSection
from rlvr_core.rollout.samplers.epochs import Shuffle
from tests.support.samplers import sampler_toys
from tests.support.samplers.sampler_toys import ids, source


def started(*sources, **options):
    return sampler_toys.started(Shuffle, *(sources or (source("a", 10),)), **options)


def group(*members):
    """Members are (reward, passed) or a status."""
    judged = []
    for member in members:
        reward, passed = (None, None) if isinstance(member, str) else member
        failed = isinstance(member, str)
        verdict = Verdict(None, member) if failed else Verdict(reward, passed=passed)
        judged.append(Judged(Completion.from_text(""), {"v": verdict}, reward, passed))
    return Group(Problem("p", "?", "v", {}, "toy"), tuple(judged), 0)


def test_t15_a_step_has_64_prompts_unless_told_otherwise():
    assert TrainSection(steps=9).prompts_per_step == 64


def test_every_epoch_holds_every_problem_once_in_another_order():
    sampler = started(source("a", 50))
    epochs = [ids(sampler.draw(50, step=0)) for _ in range(3)]
    assert all(len(set(epoch)) == 50 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_orders_depend_on_the_seed_alone():
    assert ids(started(seed=1).draw(30, step=0)) == ids(started(seed=1).draw(30, step=0))
    assert ids(started(seed=1).draw(30, step=0)) != ids(started(seed=2).draw(30, step=0))


def test_t42_the_order_of_the_file_does_not_matter():
    problems = source("a", 20).problems
    forward = started(Source("a", problems))
    backward = started(Source("a", problems[::-1]))
    assert ids(forward.draw(45, step=0)) == ids(backward.draw(45, step=0))


def test_without_weights_all_sources_are_one_pool():
    sampler = started(source("a", 30), source("b", 10))
    assert len(set(ids(sampler.draw(40, step=0)))) == 40


def test_weights_are_shares_of_draws_and_small_sources_repeat_by_epochs():
    sampler = started(source("a", 5, 3.0), source("b", 1000, 1.0))
    drawn = ids(sampler.draw(4000, step=0))
    share = sum(id_.startswith("a") for id_ in drawn) / 4000
    assert 0.72 < share < 0.78  # 0.75, standard deviation 0.007
    of_a = [id_ for id_ in drawn if id_.startswith("a")]
    assert all(len(set(of_a[i : i + 5])) == 5 for i in range(0, len(of_a) - 5, 5))
    of_b = Counter(id_ for id_ in drawn if id_.startswith("b"))
    assert max(of_b.values()) == 1


def test_a_source_without_weight_counts_by_its_share_of_problems():
    sampler = started(source("a", 900), source("b", 100, 0.9))
    drawn = ids(sampler.draw(2000, step=0))
    assert 0.45 < sum(id_.startswith("a") for id_ in drawn) / 2000 < 0.55


def test_a_state_of_other_data_or_another_seed_is_refused():
    state = started(source("a", 10)).state_dict()
    with pytest.raises(ConfigError, match="problems or their order changed"):
        started(source("a", 11)).load_state_dict(state)
    with pytest.raises(ConfigError, match="problems or their order changed"):
        started(source("a", 10), source("b", 1, 1.0)).load_state_dict(state)
    with pytest.raises(ConfigError, match="seed changed"):
        started(source("a", 10), seed=1).load_state_dict(state)


def test_groups_with_variance_are_kept():
    assert started().observe(group((1.0, True), (0.0, False))) == Keep()
    assert started().observe(group((1.0, True), (1.0 + 1e-9, True))) == Keep()


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([(1.0, True)] * 3, Drop("zero_variance", "all_passed")),
        ([(0.0, False)] * 3, Drop("zero_variance", "all_failed")),
        ([(0.5, True), (0.5, False)], Drop("zero_variance", "equal")),
        ([(0.5, True), (0.5 + 1e-13, True)], Drop("zero_variance", "all_passed")),
        ([(1.0, True), "error", (1.0, True)], Drop("zero_variance", "all_passed")),
        ([(0.0, False), (0.0, False), "timeout"], Drop("zero_variance", "all_failed")),
        ([(1.0, True), "timeout"], Drop("zero_variance", "one_scored")),
        (["error", "timeout", "error"], Drop("unscorable")),
        (["unscorable"] * 2, Drop("unscorable")),
    ],
)
def test_groups_that_cannot_teach_are_dropped_with_a_reason(members, expected):
    assert started().observe(group(*members)) == expected


def test_zero_variance_may_be_kept_but_never_what_has_no_reward():
    sampler = started(drop_zero_variance=False, n=1)
    assert sampler.observe(group((1.0, True))) == Keep()
    assert sampler.observe(group((1.0, True), (1.0, True))) == Keep()
    assert sampler.observe(group("error")) == Drop("unscorable")


def test_groups_of_one_with_dropping_would_never_train_and_are_refused():
    with pytest.raises(ConfigError, match="n is 1"):
        started(n=1)


def test_no_problems_is_an_error():
    with pytest.raises(DataError, match="b"):
        started(source("a", 1), source("b", 0))


@pytest.mark.parametrize(
    ("refill", "kept", "drawn", "expected"),
    [
        (1.0, 0, 0, 8),
        (1.0, 8, 8, 0),
        (1.0, 5, 8, 3),
        (1.0, 0, 8, 8),
        (1.0, 0, 16, 0),
        (1.0, 5, 15, 1),
        (0.0, 0, 8, 0),
        (0.5, 0, 8, 4),
        (0.3, 0, 8, 2),
    ],
)
def test_refill_replaces_what_was_dropped_up_to_its_cap(refill, kept, drawn, expected):
    sampler = started(prompts_per_step=8, refill=refill)
    assert sampler.refill(kept, drawn) == expected


@pytest.mark.parametrize(("refill", "size", "more"), [(0.29, 100, 29), (0.58, 50, 29), (0.7, 9, 6)])
def test_a_share_of_a_step_is_not_rounded_down_by_its_float(refill, size, more):
    """0.29 * 100 is 28.999999999999996."""
    assert started(prompts_per_step=size, refill=refill).refill(0, size) == more


@settings(deadline=None)
@given(
    size=st.integers(1, 20),
    refill=st.floats(0, 5),
    n_problems=st.integers(1, 7),
    keeps=st.lists(st.booleans(), min_size=200, max_size=200),
)
def test_t21_t25_t26_a_step_always_ends(size, refill, n_problems, keeps):
    sampler = started(source("a", n_problems), prompts_per_step=size, refill=refill)
    kept = drawn = 0
    wanted, rounds = size, 0
    while wanted > 0:
        draws = sampler.draw(wanted, step=0)
        assert len(draws) == wanted
        kept += sum(keeps[(drawn + i) % 200] for i in range(wanted))
        drawn += wanted
        wanted = sampler.refill(kept, drawn)
        rounds += 1
    assert kept <= size
    assert drawn <= size + Fraction(str(refill)) * size
    assert rounds <= 1 + Fraction(str(refill)) * size
