"""Sequential, curriculum and mixture: coverage, order, ratios."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_core.api import ConfigError
from rlvr_core.rollout.samplers.curriculum import Curriculum
from rlvr_core.rollout.samplers.epochs import Sequential, Shuffle, Turns
from rlvr_core.rollout.samplers.mixture import Mixture
from tests.support.samplers.sampler_toys import drawn, ids, source, started


@pytest.fixture
def order(tmp_path):
    def write(*names):
        path = tmp_path / "order.txt"
        path.write_text("".join(f"{name}\n" for name in names))
        return str(path)

    return write


def test_sequential_is_the_order_of_the_data_again_and_again():
    sampler = started(Sequential, source("a", 2), source("b", 2))
    assert drawn(sampler, 3) == ["a0", "a1", "b0"]
    assert drawn(sampler, 4) == ["b1", "a0", "a1", "b0"]


def test_a_curriculum_is_the_order_of_its_file_and_nothing_else(order):
    sampler = started(Curriculum, source("a", 3), source("b", 2), order=order("b1", "a2", "a0"))
    assert drawn(sampler, 7) == ["b1", "a2", "a0", "b1", "a2", "a0", "b1"]
    assert sampler.metrics() == {"epoch": 7 / 3}


def test_an_order_is_part_of_what_a_state_is_of(order):
    state = started(Curriculum, source("a", 3), order=order("a0", "a1")).state_dict()
    same = started(Curriculum, source("a", 3), order=order("a0", "a1"))
    same.load_state_dict(state)
    with pytest.raises(ConfigError, match="order changed"):
        started(Curriculum, source("a", 3), order=order("a1", "a0")).load_state_dict(state)


def test_mixture_by_hand(order):
    """Weights 3 : 1; a restarts while b goes on."""
    sampler = started(
        Mixture,
        source("a", 2, 3.0, order="sequential"),
        source("b", 5, 1.0, order=order("b4", "b0", "b1")),
    )
    assert drawn(sampler, 8) == ["a0", "a1", "b4", "a0", "a1", "a0", "b0", "a1"]


def test_mixture_epochs_by_hand():
    """Weights 1 : 1; a waits for b, and then both begin again."""
    sampler = started(
        Mixture,
        source("a", 1, 1.0, order="sequential"),
        source("b", 3, 1.0, order="sequential"),
        mode="epoch",
    )
    assert drawn(sampler, 8) == ["a0", "b0", "b1", "b2", "a0", "b0", "b1", "b2"]


def test_mixture_in_sequence_by_hand():
    sampler = started(
        Mixture,
        source("a", 3, order="sequential", used=2),
        source("b", 1),
        mode="sequential",
    )
    assert drawn(sampler, 7) == ["a0", "a1", "b0", "a0", "a1", "b0", "a0"]


def test_a_count_is_the_same_subset_in_every_epoch_and_run():
    def first_epochs(seed):
        drawn_ = drawn(started(Mixture, source("a", 50, used=10), seed=seed), 30)
        return drawn_, {*drawn_}

    epochs, used = first_epochs(seed=3)
    assert len(used) == 10
    assert all(set(epochs[i : i + 10]) == used for i in (0, 10, 20))
    assert epochs[:10] != epochs[10:20]
    assert first_epochs(seed=3) == (epochs, used)
    assert first_epochs(seed=4)[1] != used


def test_counts_change_the_shares_of_sources_without_weight():
    sampler = started(Mixture, source("a", 100, used=10), source("b", 30))
    assert Counter(id_[0] for id_ in drawn(sampler, 40)) == {"a": 10, "b": 30}


@pytest.mark.parametrize(
    ("cls", "options", "given", "message"),
    [
        (Sequential, {}, source("a", 3, 1.0), r"weight has no effect"),
        (Shuffle, {}, source("a", 3, order="sequential"), r"order has no effect"),
        (Shuffle, {}, source("a", 3, used=2), r"count has no effect"),
        (Mixture, {"mode": "sequential"}, source("a", 3, 1.0), r"weight has no effect"),
        (Mixture, {}, source("a", 3, used=4), r"count is 4, and there are 3 problems"),
        (Mixture, {}, source("a", 3, order="nowhere.txt"), r"cannot read the order file"),
        (Mixture, {}, source("a", 3, order="s3://bucket/order.txt"), r"s3"),
    ],
)
def test_keys_without_effect_are_refused(cls, options, given, message):
    with pytest.raises(Exception, match=message):
        started(cls, given, **options)


WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=6)


@settings(deadline=None)
@given(WEIGHTS, st.integers(1, 400))
def test_every_pool_has_its_share_at_every_moment(weights, turns):
    taken = [0] * len(weights)
    row = Turns(weights)
    for turn in range(1, turns + 1):
        taken[row.next([True] * len(weights))] += 1
        behind = [
            weight / sum(weights) * turn - n for weight, n in zip(weights, taken, strict=True)
        ]
        assert all(-1.000001 < gap < len(weights) - 0.999 for gap in behind)
    assert sum(row.credits) == 0


SOURCES = st.lists(
    st.tuples(st.integers(1, 12), st.one_of(st.none(), st.floats(0.1, 9)), st.booleans()),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=80)
@given(SOURCES, st.sampled_from(["epoch", "sequential"]), st.integers(0, 99), st.data())
def test_each_epoch_of_a_mixture_has_each_problem_once(sizes, mode, seed, data):
    sources = [
        source(
            f"s{i}_",
            size,
            None if mode == "sequential" else weight,
            order="sequential" if ordered else "shuffle",
            used=data.draw(st.one_of(st.none(), st.integers(1, size))),
        )
        for i, (size, weight, ordered) in enumerate(sizes)
    ]
    sampler = started(Mixture, *sources, mode=mode, seed=seed)
    epoch = sum(one.count or len(one.problems) for one in sources)
    everything = drawn(sampler, 3 * epoch)
    assert len(set(everything)) == epoch
    assert set(Counter(everything).values()) == {3}
    for start in (0, epoch, 2 * epoch):
        assert len(set(everything[start : start + epoch])) == epoch


@settings(deadline=None, max_examples=60)
@given(SOURCES, st.integers(0, 99))
def test_in_a_weighted_mixture_each_source_goes_by_epochs_and_none_starves(sizes, seed):
    sources = [source(f"s{i}_", size, weight) for i, (size, weight, _) in enumerate(sizes)]
    sampler = started(Mixture, *sources, seed=seed)
    everything = ids(sampler.draw(600, step=0))
    for index, one in enumerate(sources):
        own = [id_ for id_ in everything if id_.startswith(f"s{index}_")]
        assert own
        for start in range(0, len(own) - len(one.problems) + 1, len(one.problems)):
            assert len(set(own[start : start + len(one.problems)])) == len(one.problems)


def test_metrics_tell_sources_of_one_name_apart():
    sampler = started(Mixture, source("a", 2, 1.0), source("a", 4, 1.0))
    sampler.draw(4, step=0)
    assert sampler.metrics() == {"epoch/a": 1.0, "epoch/a#2": 0.5}
