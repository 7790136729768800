"""Guard ``seeds``: repeats against their expectation, over all groups and steps."""

import json
import math
import random

import numpy as np
import pytest

from rlvr_core.api import Completion, Group, GroupsScored, Judged, NoConfig, Problem, RunError
from rlvr_core.run.metrics import unique_rate
from rlvr_guards.betting import HORIZON, RepeatTest
from rlvr_guards.seeds import Seeds, allowed, index_matches, repeats


def _group(*answers, logprob=-2.0, prompt=(1,), logprobs=None):
    problem = Problem(f"p{prompt}", "?", "v", {}, "d")
    members = tuple(
        Judged(
            Completion(
                prompt,
                ids,
                logprobs[place] if logprobs else (logprob,) * len(ids),
                (True,) * len(ids),
                "",
                "stop",
                0,
            ),
            {},
            0.0,
            False,
        )
        for place, ids in enumerate(answers)
    )
    return Group(problem, members, 0)


def _watch(guard, *steps):
    for step, groups in enumerate(steps):
        guard.on_groups(GroupsScored(step, 0, tuple(groups)))
    return guard


def _sampled(rng, weights, n, *, prompt=(1,), seeds=None):
    """A group of n one-token answers; ``seeds`` gives completions the draws of others."""
    tokens = range(len(weights))
    drawn = rng.choices(tokens, weights, k=n)
    drawn = [drawn[place] for place in seeds] if seeds else drawn
    total = sum(weights)
    return _group(
        *[(token,) for token in drawn],
        logprobs=[(math.log(weights[token] / total),) for token in drawn],
        prompt=prompt,
    )


def test_repeats_and_their_probability_by_hand():
    a, b = (math.log(0.5),), (math.log(0.25),)
    happened, probability, tokens = repeats([_group((1,), (2,), (1,), (3,), logprobs=[a, b, a, b])])
    # against {1}; against {1, 2}; against the same two
    assert happened == [False, True, False]
    assert probability == pytest.approx([0.5, 0.75, 0.75])
    assert tokens == [1, 1, 1]


def test_groups_of_one_prompt_are_compared_with_each_other():
    twice = [_group((1, 2), prompt=(7,)), _group((1, 2), prompt=(7,)), _group((1, 2), prompt=(8,))]
    assert repeats(twice) == ([True], pytest.approx([math.exp(-4)]), [2])


def test_rounding_is_no_evidence_at_either_end():
    assert allowed(0.0, 1) == pytest.approx(1e-6)
    assert allowed(0.5, 1) == pytest.approx(0.525001)
    assert allowed(0.95, 100) == pytest.approx(1 - 0.8 * (0.05 - 0.001))
    assert allowed(0.996, 500) == 1.0
    assert allowed(1.0, 1) == 1.0


def test_the_wealth_of_one_repeat_by_hand():
    test = RepeatTest()
    test.add([True], [0.01])
    # a thousandth of the stake, each bet having won odds / (1 + .01 (odds - 1))
    won = [odds / (1 + 0.01 * (odds - 1)) for odds in (2, 5, 30, 1000)]
    assert math.exp(float(test.evidence()[0])) == pytest.approx(sum(won) / 4 / HORIZON)


def test_t18_repeated_completions_stop_the_run():
    # 5 tokens at -2 nats: three repeats, each with odds of 1 in e^10
    repeated = _group(*[(1, 2, 3, 4, 5)] * 4)
    with pytest.raises(RunError, match=r"seeds: 3 of 3 .* let 0\.000136 be expected"):
        _watch(Seeds(NoConfig()), [repeated])


@pytest.mark.parametrize(
    "seeds",
    [[0] * 8, [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 2, 3, 4, 5, 6, 6]],
    ids=["1 of 8", "2 of 8", "4 of 8", "7 of 8"],
)
def test_t18_partial_repeats_stop_the_run(seeds):
    rng = random.Random(1)
    weights = [1.0] * 50
    steps = [
        [_sampled(rng, weights, 8, prompt=(p,), seeds=seeds) for p in range(16)] for _ in range(3)
    ]
    with pytest.raises(RunError, match="repeat an earlier one of their prompt"):
        _watch(Seeds(NoConfig()), *steps)


def test_t18_yes_and_no_of_one_seed_stop_the_run():
    rng = random.Random(2)
    steps = [
        [_sampled(rng, [1, 1], 8, prompt=(p,), seeds=[0] * 8) for p in range(16)] for _ in range(4)
    ]
    with pytest.raises(RunError, match="guard seeds"):
        _watch(Seeds(NoConfig()), *steps)


def test_a_sure_model_may_repeat_itself():
    sure = _group(*[(1, 2, 3)] * 8, logprob=-0.001)
    _watch(Seeds(NoConfig()), [sure] * 64)
    # 500 tokens, each as sure as float32 can tell
    certain = _group(*[tuple(range(500))] * 8, logprob=-1e-5)
    _watch(Seeds(NoConfig()), *[[certain] * 64] * 20)


def test_groups_that_differ_are_no_surprise():
    rng = random.Random(6)
    orders = [rng.sample([2, 3], 2) for _ in range(100)]
    different = [_group((p, i), (p, j), prompt=(p,)) for p, (i, j) in enumerate(orders)]
    assert _watch(Seeds(NoConfig()), different).report() == {
        "seeds/repeats": 0.0,
        "seeds/expected": pytest.approx(100 * math.exp(-4)),
        "seeds/evidence": pytest.approx(0.0, abs=0.3),
    }


@pytest.mark.parametrize(
    ("groups", "n", "weights"),
    [
        (256, 8, [1, 1]),  # the shape that was stopped in 153 of 200 simulated steps
        (256, 8, [99, 1]),
        (512, 4, [995, 1, 1, 1, 1, 1]),  # a second stage from a trained checkpoint
        (16, 8, [1] * 1000),
    ],
)
def test_repeats_that_are_likely_do_not_stop_a_run(groups, n, weights):
    rng = random.Random(3)
    guard, found = Seeds(NoConfig()), {}
    for step in range(20):
        drawn = tuple(_sampled(rng, weights, n, prompt=(p,)) for p in range(groups))
        guard.on_groups(GroupsScored(step, 0, drawn))
        found = guard.report() or found
    assert abs(found["seeds/repeats"] - found["seeds/expected"]) < 6 * math.sqrt(groups * n)


def test_matches_by_index_and_their_probability_by_hand():
    before, group = _group((5,), (6,), (5,), prompt=(1,)), _group((6,), (5,), (5,), prompt=(2,))
    happened, probability = index_matches([before, group])
    # the first draws one of {6, 5, 5} to match 5, the second one of {5, 5} to match 6, the third 5
    assert happened == [False, False, True]
    assert probability == pytest.approx([2 / 3, 0.0, 1.0])
    # the position counts at which both differ: here the second
    before, group = _group((9, 5), (9, 6), prompt=(1,)), _group((9, 5), (9, 6), prompt=(2,))
    assert index_matches([before, group]) == ([True, True], [0.5, 1.0])


def test_t18_the_same_seeds_for_every_problem_stop_the_run():
    rng = random.Random(4)
    steps = []
    for _ in range(8):
        uniforms = [rng.random() for _ in range(8)]
        groups = []
        for p in range(16):
            share = 0.4 + 0.2 * rng.random()  # problems differ in what is likely
            drawn = [(0,) if u < share else (1,) if u < 0.9 else (2,) for u in uniforms]
            groups.append(_group(*drawn, prompt=(p,), logprob=-0.7))
        steps.append(groups)
    with pytest.raises(RunError, match="of the same index of another problem"):
        _watch(Seeds(NoConfig()), *steps)


def test_what_it_has_seen_goes_into_a_checkpoint_and_out_of_it():
    rng = random.Random(5)
    steps = [[_sampled(rng, [1, 2, 3], 4, prompt=(p,)) for p in range(8)] for _ in range(4)]
    whole = _watch(Seeds(NoConfig()), *steps)
    begun, resumed = _watch(Seeds(NoConfig()), *steps[:2]), Seeds(NoConfig())
    resumed.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    _watch(resumed, *steps[2:])
    assert resumed.state_dict() == whole.state_dict()
    assert resumed.report() == whole.report()


def test_the_wealth_of_a_healthy_run_is_fair():
    """Mean wealth after a step is what was staked: here by enumerating both outcomes."""
    for p in (0.001, 0.3, 0.99):
        wealth = 0.0
        for happened, chance in ((True, p), (False, 1 - p)):
            test = RepeatTest()
            test.add([happened], [p])
            wealth += chance * float(np.exp(test.evidence()[0]))
        assert wealth == pytest.approx(1 / HORIZON)


def test_unique_rate_by_hand():
    assert unique_rate([_group((1,), (1,), (2,), (3,)), _group((1,), (1,))]) == 4 / 6
    assert unique_rate([]) == 1.0
