"""A step's groups: extended, dropped, refilled, learnt from; every completion is accounted for."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future

import pytest

from rlvr_core.api import (
    Draw,
    Drop,
    Generation,
    PluginError,
    Problem,
    SamplingParams,
    Source,
)
from rlvr_core.api.progress import work_going_on
from rlvr_core.engines.sampling import completion_seed
from rlvr_core.record.ledger import Ledger
from rlvr_core.rollout.ahead.ahead import staleness_metrics
from rlvr_core.rollout.collect import collect
from rlvr_core.rollout.samplers.base import AdaptiveConfig
from rlvr_core.rollout.samplers.epochs import Sequential
from rlvr_core.run.metrics import details, fates, rollout_metrics
from tests.support.rollouts import generator_of

PARAMS = SamplingParams(max_tokens=5)


class Engine:
    """Answers the k-th completion asked of problem i by the k-th letter of its script."""

    def __init__(self, scripts):
        self.scripts = scripts
        self.requests = []
        self.given = Counter()

    def submit(self, request):
        self.requests.append(request)
        problem = request.prompt_ids[0]
        generations = []
        for _ in request.seeds:
            letter = self.scripts[problem][self.given[problem]]
            self.given[problem] += 1
            generations.append(Generation((9,), (-0.5,), letter, "stop", 0))
        future = Future()
        future.set_result(tuple(generations))
        return future

    def drain(self, timeout):
        pass


class Noting(Sequential):
    """A sampler that remembers what it was told."""

    def __init__(self, config):
        super().__init__(config)
        self.told = []

    def update(self, outcomes):
        self.told.append(list(outcomes))


def step(scripts, *, n=4, replayed=0, prompts_per_step=64, kind=Noting, **options):
    """One step over problems 0, 1, ... with these scripts."""
    problems = tuple(Problem(f"p{i}", str(i), "v", {}, "toy") for i in range(len(scripts)))
    sampler = kind(kind.Config(**options))
    sampler.start([Source("toy", problems)], n=n, prompts_per_step=prompts_per_step, seed=3)
    engine = Engine(scripts)
    rollouts = collect(generator_of(engine), sampler, PARAMS, version=7, step=0, replayed=replayed)
    return rollouts, sampler, engine


def sizes(sampled):
    return {one.draw.problem.id: len(one.group.members) for one in sampled}


def test_groups_without_variance_are_dropped_and_refilled_up_to_the_cap():
    scripts = ["PPPP", "PFPF", "FFFF", "FFFF", "FFPF", "PPPP"]
    rollouts, sampler, _ = step(scripts, prompts_per_step=2, refill=1.5)
    assert [one.draw.problem.id for one in rollouts.kept] == ["p1", "p4"]
    assert [one.drop for one in rollouts.dropped] == [
        Drop("zero_variance", "all_passed"),
        Drop("zero_variance", "all_failed"),
        Drop("zero_variance", "all_failed"),
    ]
    assert [[one.problem_id for one in told] for told in sampler.told] == [
        ["p0", "p1"],
        ["p2"],
        ["p3"],
        ["p4"],
    ]
    assert rollouts.drawn == 5  # 2 + 1.5 * 2


def test_what_is_done_of_a_step_can_be_counted_while_it_goes_on():
    seen = []

    class Slow(Engine):
        pending = ()

        def submit(self, request):
            self.pending = [*self.pending, (Future(), super().submit(request))]
            return self.pending[-1][0]

        def drain(self, timeout):
            for future, given in self.pending:
                seen.extend((one.done(), one.total, one.unit) for one in work_going_on())
                future.set_result(given.result())

    problems = [Problem(f"p{i}", str(i), "v", {}, "toy") for i in range(2)]
    draws = [Draw(problem, 3, place) for place, problem in enumerate(problems)]
    generator = generator_of(Slow(["PPF", "FPF"]))
    made = generator.generate(draws, PARAMS, version=0, step=0)
    assert seen == [(0, 6, "completions"), (3, 6, "completions")]
    rewards = [[member.reward for member in one.group.members] for one in made]
    assert rewards == [[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    assert work_going_on() == ()


def test_the_cap_ends_a_step_that_finds_nothing():
    rollouts, _, _ = step(["FFFF"] * 9, prompts_per_step=2, refill=2.0)
    assert (len(rollouts.kept), rollouts.drawn) == (0, 6)


def test_a_sampler_that_asks_for_more_than_it_states_is_named():
    class Endless(Noting):
        def refill(self, kept, drawn):
            return 1

    for script, said in (("PPFF", "2 of 2 are kept"), ("FFFF", "0 of 2 are kept")):
        with pytest.raises(PluginError, match=f"asks for 1 more groups: {said}") as caught:
            step([script] * 9, prompts_per_step=2, kind=Endless, refill=0.5)
        assert "test_collect.py" in str(caught.value)
        assert "refill of 0.5" in str(caught.value)


ADAPTIVE = AdaptiveConfig(k_success=1, k_failure=1, chunk_size=2, max_completions=6)


def test_a_group_goes_on_until_it_is_decided():
    scripts = ["PF", "FFFP", "FFFFFF", "PPF" + "F", "EEPFFF"]
    rollouts, sampler, engine = step(scripts, prompts_per_step=5, refill=0, adaptive=ADAPTIVE)
    assert sizes(rollouts.all) == {"p0": 2, "p1": 4, "p2": 6, "p3": 4, "p4": 4}
    assert [one.draw.problem.id for one in rollouts.kept] == ["p0", "p1", "p3", "p4"]
    assert [one.draw.n for one in rollouts.all] == [2, 4, 6, 4, 4]
    (told,) = sampler.told
    assert [(one.successes, one.failures, one.kept) for one in told] == [
        (1, 1, True),
        (1, 3, True),
        (0, 6, False),
        (2, 2, True),
        (1, 1, True),
    ]
    texts = "".join(member.completion.text for member in rollouts.all[1].group.members)
    assert texts == "FFFP"
    assert len({request.id for request in engine.requests}) == len(engine.requests)


def test_the_seeds_of_an_extended_group_are_those_of_one_drawn_at_once():
    _, _, engine = step(["FFFFFF"], prompts_per_step=1, refill=0, adaptive=ADAPTIVE)
    seeds = [seed for request in engine.requests for seed in request.seeds]
    assert seeds == [completion_seed(3, "p0", 7, 0, sample) for sample in range(6)]


def test_every_completion_drawn_is_in_the_ledger():
    scripts = ["PF", "FFFFFF", "EEEEEE", "EEPF", "PPPPPP", "FP"]
    rollouts, _, _ = step(scripts, prompts_per_step=3, refill=1.0, adaptive=ADAPTIVE)
    ledger = Ledger()
    for one in rollouts.all:
        ends = fates(one, mask_truncated=False)
        ledger.draw(len(ends))
        for fate in ends:
            ledger.settle(fate, 1)
    line = ledger.step_line()
    assert rollouts.drawn == 6
    assert line["ledger/drawn"] == sum(map(len, scripts))
    assert line["ledger/trained"] == 2 + 2 + 2  # p0, p3's two that were judged, p5
    assert line["ledger/zero_variance"] == 6 + 6
    assert line["ledger/error"] == 6 + 2
    assert line["ledger/in_flight"] == 0
    assert rollout_metrics(rollouts)["groups/size"] == 26 / 6


def test_the_groups_of_a_step_add_up():
    scripts = ["PF", "PP", "FF", "PE", "UE", "FU", "EE"]
    line = rollout_metrics(step(scripts, n=2, prompts_per_step=7, refill=0)[0])
    found = {name: count for name, count in line.items() if name.startswith("groups/")}
    assert found == {
        "groups/drawn": 7,
        "groups/kept": 1,
        "groups/all_passed": 1,
        "groups/all_failed": 1,
        "groups/equal": 0,
        "groups/dropped/one_scored": 2,
        "groups/dropped/unscorable": 2,
        "groups/zero_variance": 4,
        "groups/none_passed": 2,
        "groups/size": 2,
    }


def test_groups_without_variance_are_counted_where_they_are_kept():
    options = {"prompts_per_step": 3, "refill": 0, "drop_zero_variance": False}
    line = rollout_metrics(step(["PF", "PP", "FF"], n=2, **options)[0])
    assert (line["groups/kept"], line["groups/zero_variance"]) == (3, 2)
    # what the guard guards/collapse goes by; groups/all_failed counts only what was dropped
    assert (line["groups/none_passed"], line["groups/all_failed"]) == (1, 0)


def test_why_a_group_was_dropped_is_not_said_of_what_could_not_be_judged():
    # 'error' is the commonest status of the group, but not that of its last completion
    rollouts, _, _ = step(["EEU", "FFU"], n=3, prompts_per_step=2, refill=0)
    told = [
        list(zip(fates(one, mask_truncated=False), details(one), strict=True))
        for one in rollouts.all
    ]
    assert told == [
        [("error", ""), ("error", ""), ("unscorable", "")],
        [("zero_variance", "all_failed"), ("zero_variance", "all_failed"), ("unscorable", "")],
    ]


@pytest.mark.parametrize(("replayed", "drawn"), [(0, 3), (2, 1), (3, 0), (5, 0)])
def test_what_is_replayed_is_not_generated(replayed, drawn):
    rollouts, _, _ = step(["PFPF"] * 4, prompts_per_step=3, replayed=replayed)
    assert rollouts.drawn == drawn
    line = rollout_metrics(rollouts)  # of nothing there is no share, not one of 1
    assert ("unique_rate" in line) == ("groups/size" in line) == (drawn > 0)


def test_replayed_groups_leave_the_cap_of_refills_as_it_is():
    rollouts, _, _ = step(["FFFF"] * 12, prompts_per_step=4, refill=0.5, replayed=3)
    assert rollouts.drawn == 1 + 2


def test_what_was_read_again_without_a_completion_to_train_on_has_no_age():
    """Under mask_truncated a group of truncated completions may be kept, and be read again."""
    assert staleness_metrics(Counter({("reread", 1): 0})) == {}
    assert staleness_metrics(Counter({("reread", 2): 0, ("reread", 1): 4})) == {
        "staleness/reread/1": 4,
        "staleness/mean": 1.0,
        "staleness/max": 1,
    }
