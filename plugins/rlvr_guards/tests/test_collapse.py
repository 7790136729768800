"""Guard ``guards/collapse``: counts that fall or rise, their causes, and runs that are healthy."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rlvr_core.api import (
    Completion,
    Group,
    GroupsScored,
    Judged,
    Problem,
    RunError,
    RunStarted,
    StepFinished,
    Verdict,
)
from rlvr_guards.betting import HORIZON, FallTest, MeanTest, RiseTest
from rlvr_guards.causes import Trend, cause_of_fall, orders
from rlvr_guards.collapse import ODDS, Collapse

SHUFFLE = {"sampler": {"use": "core/shuffle"}, "data": {"sources": [{"use": "core/jsonl"}]}}
CURRICULUM = SHUFFLE | {"sampler": {"use": "core/curriculum", "with": {"order": "easy.txt"}}}


class Run:
    """A guard and the random steps it is shown."""

    def __init__(self, config=SHUFFLE, *, groups=64, n=8, **options):
        self.guard, self.said = Collapse(Collapse.Config(**options)), []
        self.guard.bind(SimpleNamespace(say=self.said.append))
        self.guard.run_started(RunStarted(Path(), config, 0))
        self.rng = np.random.default_rng(1)
        self.groups, self.n, self.step = groups, n, 0

    def take(self, steps, metrics=None, **shares):
        for _ in range(steps):
            groups = tuple(self._group(place, **shares) for place in range(self.groups))
            self.guard.on_groups(GroupsScored(self.step, self.step, groups))
            self.guard.on_step(StepFinished(self.step, self.step, metrics or {}))
            self.step += 1
        return self

    def _group(self, place, passed=0.5, truncated=0.0, extracted=None, empty=0.0, same=0.0):
        rng, members = self.rng, []
        for _ in range(self.n):
            has_answer = None if extracted is None else rng.random() < extracted
            right = bool(rng.random() < passed) and has_answer is not False
            alike = rng.random() < same
            ids = (7,) if alike else tuple(rng.integers(0, 10**6, 3).tolist())
            text = "" if rng.random() < empty else "text"
            parts = {} if has_answer is None else {"extracted": float(has_answer)}
            reason = "length" if rng.random() < truncated else "stop"
            right = right and not alike and bool(text)
            members.append(
                Judged(
                    Completion(
                        (place,), ids, (-1.0,) * len(ids), (True,) * len(ids), text, reason, 0
                    ),
                    {"v": Verdict(float(right), passed=right, parts=parts)},
                    float(right),
                    right,
                )
            )
        return Group(Problem(f"p{place}", "?", "v", {}, "d"), tuple(members), 0)


def test_a_bet_on_a_mean_by_hand():
    test = MeanTest([0.5], above=True)
    test.add(np.array([0.25, 1.0]), np.array([1.0, 2.0]))
    # each bet is a share of 1 / 0.5; a thousandth of the stake is placed before the step
    won = [(1 + 2 * s * -0.25) * (1 + 2 * s * 0.5) ** 2 for s in MeanTest.SHARES]
    assert math.exp(float(test.evidence()[0])) == pytest.approx(sum(won) / 5 / HORIZON)


def test_the_bets_on_a_mean_are_fair_where_it_is_the_bound():
    for above in (True, False):
        wealth = 0.0
        for value, chance in ((0.0, 0.2), (0.5, 0.2), (0.75, 0.4), (1.0, 0.2)):  # mean 0.6
            test = MeanTest([0.6], above=above)
            test.add(np.array([value]), np.array([1.0]))
            wealth += chance * float(np.exp(test.evidence()[0]))
        assert wealth == pytest.approx(1 / HORIZON)


def test_the_odds_of_all_tests_add_up_to_one_in_ten_thousand():
    assert sum(ODDS.values()) == pytest.approx(1e-4)


def test_t5_a_pass_rate_that_falls_to_a_half_stops_the_run():
    run = Run().take(60, {"kl/mean": 0.01})
    assert 0.4 < run.guard.report()["collapse/level"] < 0.52
    with pytest.raises(
        RunError, match=r"more than 35% of the pass rate of 0\.4\d has been lost"
    ) as e:
        run.take(60, {"kl/mean": 0.01}, passed=0.25)
    assert "see whether the data or the verifier changed" in str(e.value)
    Run(max_drop=0.7).take(60).take(20, passed=0.25)
    Run(max_drop=None).take(10).take(10, passed=0.0)


def test_t5_the_advice_follows_from_the_cause():
    run = Run().take(60, {"kl/mean": 0.01})
    with pytest.raises(RunError, match="kl/mean has doubled"):
        run.take(60, {"kl/mean": 0.2}, passed=0.1)
    run = Run().take(40)
    with pytest.raises(RunError, match=r"raise sampling\.max_tokens"):
        run.take(60, passed=0.1, truncated=0.7)
    run = Run(max_extraction_drop=None).take(40, extracted=0.9)
    with pytest.raises(RunError, match="the format was lost"):
        run.take(60, extracted=0.2)


@pytest.mark.parametrize("over", [1, 5, 20])
def test_t5_a_format_that_is_lost_stops_the_run(over):
    run = Run(groups=16).take(40, extracted=0.9)
    with pytest.raises(RunError, match="reward the format"):
        _lose_the_format(run, over)


def _lose_the_format(run, over):
    for step in range(over):
        run.take(1, extracted=0.9 * (1 - (step + 1) / over))
    run.take(20, extracted=0.0)


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ({"truncated": 1.0}, "are cut off at the token cap"),
        ({"empty": 1.0}, "are empty"),
        ({"same": 1.0}, "fail with one and the same text"),
        ({"extracted": 0.0}, "an answer is found in hardly any"),
    ],
)
def test_t5_what_is_bad_from_the_first_step_may_be_the_task_and_is_said_once(shares, said):
    run = Run(groups=64).take(30, passed=0.0, **shares)
    (text,) = run.said
    assert text.startswith("warning: guard collapse: ")
    assert said in text


def test_what_does_not_fail_is_nothing_to_say():
    assert Run(groups=64).take(30, passed=1.0, truncated=1.0).said == []
    assert Run(groups=64).take(30, passed=0.0).said == []
    assert Run(groups=64).take(30, passed=0.5, extracted=0.04).said == []


def test_t5_a_bound_counts_from_when_it_was_kept():
    run = Run(groups=16).take(30, passed=0.0, truncated=0.92)  # a hard start
    run.take(40, passed=0.0, truncated=0.3)
    with pytest.raises(RunError, match="cut off"):
        run.take(40, passed=0.0, truncated=1.0)


def test_t5_certainty_counts_where_completions_fail():
    sure, open_ = {"entropy/mean": 0.004}, {"entropy/mean": 0.3}
    Run(groups=4).take(30, sure)  # it never was open
    Run(groups=4).take(12, open_).take(30, sure, passed=1.0)  # a task that is solved
    with pytest.raises(RunError, match=r"entropy/mean is 0\.00\d+ nats, below min_entropy"):
        Run(groups=4).take(12, open_).take(30, sure)
    Run(groups=4, min_entropy=None).take(12, open_).take(30, sure)


def test_problems_that_the_sampler_makes_harder_are_no_collapse():
    run = Run(CURRICULUM)
    for passed in (0.8, 0.6, 0.4, 0.2, 0.1):
        run.take(12, passed=passed)
    with pytest.raises(RunError, match="the sampler orders problems"):
        run.take(40, passed=0.0)


def test_which_samplers_order_problems():
    assert not orders(SHUFFLE)
    assert orders(CURRICULUM)
    mixture = {"sampler": {"use": "core/mixture", "with": {"mode": "weighted"}}}
    assert not orders(SHUFFLE | mixture)
    assert orders(SHUFFLE | {"sampler": {"use": "core/mixture", "with": {"mode": "sequential"}}})
    assert orders(SHUFFLE | mixture | {"data": {"sources": [{"order": "easy.txt"}]}})


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.2, 0.99])
def test_a_constant_rate_is_no_collapse(rate):
    Run(groups=16).take(60, passed=rate)


def test_a_rising_rate_is_no_collapse():
    run = Run(groups=16)
    for step in range(60):
        run.take(1, passed=0.03 + 0.17 * step / 60)


def test_steps_without_groups_and_rewards_without_an_outcome():
    run = Run()
    run.guard.on_groups(GroupsScored(0, 0, ()))
    run.guard.on_step(StepFinished(0, 0, {}))
    assert run.guard.report() == {"collapse/evidence": 0.0}


@pytest.mark.parametrize("config", [SHUFFLE, CURRICULUM])
def test_what_it_remembers_goes_into_a_checkpoint_and_out_of_it(config):
    first = Run(config).take(30, {"entropy/mean": 0.3, "kl/mean": 0.1}, extracted=0.9)
    other = Run(config)
    other.guard = Collapse(Collapse.Config())
    other.guard.load_state_dict(json.loads(json.dumps(first.guard.state_dict())))
    other.guard.run_started(RunStarted(Path(), config, 30, True))
    other.rng.bit_generator.state = first.rng.bit_generator.state
    other.step = first.step
    for run in (first, other):
        with pytest.raises(RunError, match="guard collapse") as error:
            run.take(60, passed=0.0, truncated=0.8, extracted=0.1)
        run.said = str(error.value)
    assert first.said == other.said
    assert first.step == other.step
    assert first.guard.state_dict() == other.guard.state_dict()


def test_many_runs_beside_each_other_are_tested_as_one_by_one():
    rng = np.random.default_rng(2)
    values = np.arange(5) / 4
    count_SRV = rng.multinomial(16, [0.4, 0.2, 0.1, 0.1, 0.2], size=(30, 3)).astype(float)
    for made in (lambda: FallTest(0.3, 0.5), lambda: RiseTest(0.3, 0.5)):
        together = made()
        alone = [made() for _ in range(3)]
        for count_RV in count_SRV:
            found_R = together.add(values, count_RV)
            singly = [float(test.add(values, c)) for test, c in zip(alone, count_RV, strict=True)]
            assert found_R.tolist() == pytest.approx(singly)


def test_causes_by_what_moved():
    trends = {name: Trend() for name in ("truncated", "extracted", "entropy", "kl")}
    assert cause_of_fall(trends, ordered=False) == "pass"
    assert cause_of_fall(trends, ordered=True) == "data"
    for value in (1.0, 0.2, 0.2, 0.2, 0.2):
        trends["entropy"].add(value)
    # long: 1, .992, .984, ...; short: 1, .84, .712, .61, .528
    assert trends["entropy"].fast == pytest.approx(0.5277, abs=1e-4)
    assert cause_of_fall(trends, ordered=False) == "pass"
    trends["entropy"].add(0.2)
    assert cause_of_fall(trends, ordered=False) == "entropy"
