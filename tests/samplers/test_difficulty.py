"""Pools by pass rate, solved problems, tiers in phases."""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rlvr_core.api import ConfigError, DataError, Outcome, Sampler, Source
from rlvr_core.rollout.samplers.difficulty import Difficulty, Record
from rlvr_core.rollout.samplers.phases import Phase, phase_at
from tests.support.samplers.sampler_toys import drawn, ids, outcomes, source, started, through_json


def told(sampler, id_, *groups):
    """Tell a sampler of groups of a problem, each (successes, failures)."""
    sampler.update([Outcome(0, id_, good, bad, True) for good, bad in groups])


def test_it_is_a_sampler_and_begins_with_every_problem_once():
    sampler = started(Difficulty, source("a", 30))
    assert isinstance(sampler, Sampler)
    assert len(set(drawn(sampler, 30))) == 30
    assert drawn(started(Difficulty, source("a", 30)), 30) != sorted(f"a{i}" for i in range(30))


def test_the_pass_rate_is_that_of_the_window():
    sampler = started(Difficulty, source("a", 2), window=2)
    assert sampler.pass_rate("a0") is None
    told(sampler, "a0", (8, 0))
    assert sampler.pass_rate("a0") == 1.0
    told(sampler, "a0", (2, 6))
    assert sampler.pass_rate("a0") == 10 / 16
    told(sampler, "a0", (0, 4))
    assert sampler.pass_rate("a0") == 2 / 12  # the first group has left the window


def test_a_group_nobody_could_judge_says_nothing():
    sampler = started(Difficulty, source("a", 2))
    told(sampler, "a0", (3, 1), (0, 0))
    assert sampler.pass_rate("a0") == 0.75


@pytest.mark.parametrize(
    ("group", "pool"),
    [((0, 8), "hard"), ((1, 7), "hard"), ((2, 6), "normal"), ((6, 2), "easy"), ((8, 0), "easy")],
)
def test_thresholds_are_inclusive(group, pool):
    sampler = started(Difficulty, source("a", 2), hard_threshold=0.125, easy_threshold=0.75)
    assert sampler.pool("a0") == "unseen"
    told(sampler, "a0", group)
    assert sampler.pool("a0") == pool
    assert sampler.metrics() == {
        "unseen": 1,
        "hard": pool == "hard",
        "normal": pool == "normal",
        "easy": pool == "easy",
        "solved": 0,
    }


def sorted_out(sampler, n=8):
    """Show every problem once: h never passes, m sometimes, e always."""
    draws = sampler.draw(len(sampler._problems), step=0)
    passes = {draw.problem.id: {"h": 0, "m": 3, "e": n}[draw.problem.id[0]] for draw in draws}
    sampler.update(outcomes(draws, passes, n))


def test_pools_are_drawn_by_weight_and_in_a_pool_the_longest_ago_first():
    sampler = started(
        Difficulty, source("h", 100), source("m", 300), source("e", 100), hard=0.25, easy=0.0
    )
    sorted_out(sampler)
    some = drawn(sampler, 200)
    counts = Counter(id_[0] for id_ in some)
    assert counts["e"] == 0
    assert 20 < counts["h"] < 62  # 40, standard deviation 5.7
    assert len(set(some)) == 200
    normal = [id_ for id_ in some + drawn(sampler, 200) if id_[0] == "m"]
    assert len(set(normal)) == min(len(normal), 300)


def test_weights_of_empty_pools_do_not_count():
    sampler = started(Difficulty, source("m", 20), unseen=1000.0, normal=0.001)
    sorted_out(sampler)
    assert len(set(drawn(sampler, 20))) == 20


def test_before_a_problem_comes_twice_in_a_step_the_others_come():
    sampler = started(
        Difficulty, source("h", 3), source("m", 2), source("e", 3), hard=0, easy=0, solved_after=1
    )
    sorted_out(sampler)
    some = drawn(sampler, 16)
    assert {*some[:2]} == {"m0", "m1"}
    assert {*some[2:5]} == {"h0", "h1", "h2"}
    assert {*some[5:8]} == {"e0", "e1", "e2"}  # the solved come last
    assert {*some[8:10]} == {"m0", "m1"}


def test_solved_problems_are_left_out_until_they_fail_again():
    sampler = started(Difficulty, source("a", 20), solved_after=2, easy=1.0)
    told(sampler, "a3", (8, 0))
    assert sampler.pool("a3") == "easy"
    told(sampler, "a3", (8, 0))
    assert sampler.pool("a3") == "solved"
    assert "a3" not in drawn(sampler, 19)
    told(sampler, "a3", (7, 1))
    assert sampler.pool("a3") == "normal"


def test_when_everything_is_solved_the_run_goes_on():
    sampler = started(Difficulty, source("e", 4), solved_after=1)
    sorted_out(sampler)
    assert sampler.metrics()["solved"] == 4
    assert len(set(drawn(sampler, 4))) == 4


@settings(deadline=None, max_examples=40)
@given(
    size=st.integers(1, 25),
    per_step=st.integers(1, 12),
    rates=st.lists(st.sampled_from([0, 1, 2, 4]), min_size=25, max_size=25),
    seed=st.integers(0, 50),
)
def test_nothing_starves_while_its_pool_has_weight(size, per_step, rates, seed):
    sampler = started(Difficulty, source("a", size), seed=seed, hard=0.2, easy=0.2)
    seen = Counter()
    for step in range(40 * size // per_step + 40):
        draws = sampler.draw(per_step, step=step)
        assert len(draws) == per_step
        assert max(Counter(ids(draws)).values()) <= -(-per_step // size)
        seen.update(ids(draws))
        sampler.update(outcomes(draws, {f"a{i}": rates[i] for i in range(size)}))
    assert min(seen[f"a{i}"] for i in range(size)) >= 2


def test_pass_rates_to_begin_with(tmp_path):
    path = tmp_path / "difficulty.jsonl"
    rows = [
        {"id": "a0", "pass_rate": 0.0, "n": 8},
        {"id": "a1", "pass_rate": 0.5},
        {"id": "a2", "pass_rate": 1},
        {"id": "a3", "pass_rate": None},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sampler = started(Difficulty, source("a", 5), pass_rates=str(path))
    assert [sampler.pool(f"a{i}") for i in range(5)] == [
        "hard",
        "normal",
        "easy",
        "unseen",
        "unseen",
    ]
    told(sampler, "a0", (4, 4))
    assert sampler.pass_rate("a0") == 0.5  # what was measured in the run replaces it
    state = sampler.state_dict()
    path.write_text(path.read_text().replace("0.5", "0.6"))
    with pytest.raises(ConfigError, match="changed"):
        started(Difficulty, source("a", 5), pass_rates=str(path)).load_state_dict(state)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "b0", "pass_rate": 0.5}, "no problem has the id 'b0'"),
        ({"id": "a0", "pass_rate": 1.5}, "from 0 to 1"),
        ({"id": "a0", "pass_rate": True}, "from 0 to 1"),
        ({"id": "a0"}, "from 0 to 1"),
        ({"pass_rate": 0.5}, "has an id"),
    ],
)
def test_pass_rates_that_make_no_sense_are_refused(tmp_path, row, message):
    path = tmp_path / "difficulty.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match=message):
        started(Difficulty, source("a", 5), pass_rates=str(path))


def tiered(**options):
    sources = [source(f"{name}_", 40, level=name) for name in ("primer", "easy", "medium", "hard")]
    return started(Difficulty, *sources, tier_by="level", **options)


BOOTSTRAP = {"until_step": 10, "tiers": {"primer": 1, "easy": 1}}
TIERED = {"tiers": {"primer": 0, "easy": 0.2, "medium": 0.4, "hard": 0.4}}


def test_phases_are_a_function_of_the_step_alone():
    phases = (Phase(**BOOTSTRAP), Phase(**TIERED))
    assert [phase_at(phases, step) is phases[0].tiers for step in (0, 9, 10, 11)] == [
        True,
        True,
        False,
        False,
    ]
    assert phase_at((), 5) is None
    # asked for a late step first, a sampler says what it would have said anyway
    late = tiered(phases=[BOOTSTRAP, TIERED])
    assert {id_.split("_")[0] for id_ in drawn(late, 60, step=10)} == {"easy", "medium", "hard"}
    assert {id_.split("_")[0] for id_ in drawn(late, 60, step=9)} == {"primer", "easy"}


def test_tiers_are_drawn_by_weight():
    sampler = tiered(phases=[TIERED])
    counts = Counter(
        id_.split("_")[0] for step in range(60) for id_ in drawn(sampler, 10, step=step)
    )
    assert counts["primer"] == 0
    assert 80 < counts["easy"] < 160  # 120, standard deviation 10
    assert 190 < counts["medium"] < 290  # 240, standard deviation 12


def test_tiers_may_be_numbers_and_data_sets():
    sources = [source("a", 5, level=1), source("b", 5, level=5)]
    sampler = started(Difficulty, *sources, tier_by="level", phases=[{"tiers": {1: 0, 5: 1}}])
    assert {id_[0] for id_ in drawn(sampler, 20)} == {"b"}
    sampler = started(Difficulty, *sources, tier_by="dataset", phases=[{"tiers": {"a": 1, "b": 0}}])
    assert {id_[0] for id_ in drawn(sampler, 20)} == {"a"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tier_by": "level"}, "tiers need both"),
        ({"phases": [TIERED]}, "tiers need both"),
        ({"tier_by": "level", "phases": [BOOTSTRAP]}, "the last has none"),
        ({"tier_by": "level", "phases": [TIERED, TIERED]}, "the last has none"),
        (
            {"tier_by": "level", "phases": [BOOTSTRAP, BOOTSTRAP | {"until_step": 10}, TIERED]},
            "must rise",
        ),
        ({"tier_by": "level", "phases": [{"tiers": {"easy": 0}}]}, "every tier weight 0"),
        ({"hard_threshold": 0.5, "easy_threshold": 0.5}, "must be below"),
        ({"unseen": 0, "hard": 0, "normal": 0, "easy": 0}, "all have weight 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        Difficulty.Config(**options)


def test_tiers_that_do_not_fit_the_data_are_refused():
    with pytest.raises(ConfigError) as caught:
        tiered(phases=[{"tiers": {"primer": 1, "easy": 1, "mediun": 1}}])
    text = str(caught.value)
    assert "no problem is of tier 'mediun'" in text
    assert "did you mean: medium?" in text
    assert "no phase names tier 'hard', which has 40 problems" in text
    with pytest.raises(DataError, match="a0 has no tag 'level'"):
        started(Difficulty, source("a", 2), tier_by="level", phases=[TIERED])


def test_t42_the_order_of_the_file_does_not_matter():
    problems = source("a", 20).problems
    forward = started(Difficulty, Source("a", problems))
    backward = started(Difficulty, Source("a", problems[::-1]))
    assert drawn(forward, 45) == drawn(backward, 45)


class BySorting(Difficulty):
    """The rule itself: all problems are sorted for each draw."""

    def choose(self, n_problems, step):
        tiers, left = phase_at(self._config.phases, step), []
        for index in range(self.drawn, self.drawn + n_problems):
            left = left or [
                id_ for id_ in self._problems if tiers is None or tiers.get(self._tiers[id_], 0) > 0
            ]
            key = {id_: (self._tiers[id_], self.pool(id_)) for id_ in left}
            queues = set(key.values())
            queue = self._choose(queues, tiers, index)
            age = {id_: self._records[id_].last if id_ in self._records else -1 for id_ in left}
            oldest = min(
                (id_ for id_ in left if key[id_] == queue),
                key=lambda id_: (age[id_], self._ranks[id_]),
            )
            left.remove(oldest)
            self._records.setdefault(oldest, Record()).last = index
            yield self._problems[oldest]


@settings(max_examples=12, deadline=None)
@given(st.randoms(use_true_random=False), st.booleans(), st.integers(1, 3))
def test_queues_draw_what_sorting_all_problems_draws(random, tiered, solved_after):
    sources = [source("a", 6, kind="x"), source("b", 5, kind="y")]
    tiers = {
        "tier_by": "kind",
        "phases": [{"until_step": 5, "tiers": {"x": 1}}, {"tiers": {"x": 1, "y": 2}}],
    }
    options = {"solved_after": solved_after, "easy": 0.0} | (tiers if tiered else {})
    fast, slow = (started(cls, *sources, **options) for cls in (Difficulty, BySorting))
    for step in range(12):
        n = random.randint(1, 14)
        draws = fast.draw(n, step=step)
        assert ids(draws) == drawn(slow, n, step)
        passes = {draw.problem.id: random.choice([0, 2, 4]) for draw in draws}
        judged = [one for one in outcomes(draws, passes) if random.random() < 0.8]
        fast.update(judged)
        slow.update(judged)
        assert fast.metrics() == slow.metrics()
        if random.random() < 0.2:
            state = through_json(fast.state_dict())
            fast = started(Difficulty, *sources, **options)
            fast.load_state_dict(state)
