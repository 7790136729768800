"""Every sampler goes on exactly from a state taken at any moment, whatever happened before."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_core.rollout.samplers.curriculum import Curriculum
from rlvr_core.rollout.samplers.difficulty import Difficulty
from rlvr_core.rollout.samplers.epochs import Sequential, Shuffle
from rlvr_core.rollout.samplers.mixture import Mixture
from tests.support.samplers.sampler_toys import outcomes, source, started, through_json

A, B = source("a", 7, level=1), source("b", 4, level=2)
PHASES = [{"until_step": 3, "tiers": {1: 1}}, {"tiers": {1: 0.3, 2: 1}}]


@pytest.fixture(scope="module")
def order(tmp_path_factory):
    path = tmp_path_factory.mktemp("order") / "order.txt"
    path.write_text("b3\na2\na6\nb0\na1\n")
    return str(path)


def build(name, order, seed=0):
    """A sampler and what it was started with."""
    weighted = (source("a", 7, 2.0), source("b", 4, 1.0, order=order_of(order)))
    cls, sources, options = {
        "shuffle": (Shuffle, (A, B), {}),
        "weighted shuffle": (Shuffle, (source("a", 7, 2.0), source("b", 4, 0.3)), {}),
        "sequential": (Sequential, (A, B), {}),
        "curriculum": (Curriculum, (A, B), {"order": order}),
        "mixture": (Mixture, weighted, {}),
        "mixture by epochs": (Mixture, weighted, {"mode": "epoch"}),
        "mixture in sequence": (Mixture, (A, B), {"mode": "sequential"}),
        "difficulty": (Difficulty, (A, B), {"solved_after": 2}),
        "tiers": (Difficulty, (A, B), {"tier_by": "level", "phases": PHASES}),
    }[name]
    return started(cls, *sources, seed=seed, **options), sources


def order_of(path):
    """An order file of b alone, beside the one of all."""
    alone = Path(path).with_name("b.txt")
    alone.write_text("b2\nb0\nb3\n")
    return str(alone)


NAMES = [
    *("shuffle", "weighted shuffle", "sequential", "curriculum", "difficulty", "tiers"),
    *("mixture", "mixture by epochs", "mixture in sequence"),
]
CALLS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=8)


def play(sampler, calls, first_step=0):
    """Draw, and tell the sampler how the groups came out; everything it drew."""
    everything = []
    for step, (count, passed) in enumerate(calls, first_step):
        draws = sampler.draw(count, step=step)
        sampler.update(outcomes(draws, passed))
        everything.append((draws, sampler.metrics()))
    return everything


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=25)
@given(before=CALLS, after=CALLS, seed=st.integers(0, 2**40))
def test_t94_a_state_round_trip_is_exact(order, name, before, after, seed):
    sampler, _ = build(name, order, seed)
    play(sampler, before)
    state = through_json(sampler.state_dict())
    again, _ = build(name, order, seed)
    play(again, after)  # whatever it did before, it goes where the state says
    again.load_state_dict(state)
    assert through_json(again.state_dict()) == state
    assert play(again, after, len(before)) == play(sampler, after, len(before))
    assert again.state_dict() == sampler.state_dict()


CALLED = [(5, 4), (3, 0), (6, 2), (5, 4), (9, 1)]


@pytest.mark.parametrize("name", NAMES)
def test_two_copies_that_are_told_the_same_draw_the_same(order, name):
    """What many processes rely on: the state is global, and the same everywhere."""
    assert play(build(name, order)[0], CALLED) == play(build(name, order)[0], CALLED)


@pytest.mark.parametrize("name", NAMES)
def test_draws_are_numbered_through_and_never_more_than_asked_for(order, name):
    played = play(build(name, order)[0], [(5, 1), (0, 0), (7, 3)])
    assert [len(draws) for draws, _ in played] == [5, 0, 7]
    assert [draw.index for draws, _ in played for draw in draws] == list(range(12))


@pytest.mark.parametrize("name", NAMES)
def test_a_new_start_forgets(order, name):
    sampler, sources = build(name, order)
    first = play(sampler, CALLED)
    sampler.start(sources, n=4, prompts_per_step=64, seed=0)
    assert play(sampler, CALLED) == first
