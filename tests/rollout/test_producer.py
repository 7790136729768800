"""The thread that keeps the buffer filled, with an engine that answers when the test says so."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from rlvr_core.api import (
    BackgroundEngine,
    ConfigError,
    Problem,
    RunError,
    SamplingParams,
    Source,
)
from rlvr_core.rollout.ahead import producer
from rlvr_core.rollout.ahead.buffer import GroupBuffer
from rlvr_core.rollout.ahead.producer import Producer
from rlvr_core.rollout.replay import Reading
from rlvr_core.rollout.samplers.base import AdaptiveConfig
from rlvr_core.rollout.samplers.epochs import Sequential
from tests.support.rollouts import PATIENCE, HeldEngine, generator_of


class World:
    """A producer and all around it; problems p0, p1, ... in turn, two completions each."""

    def __init__(
        self,
        k,
        in_flight,
        *,
        per_step=2,
        steps=99,
        check=None,
        n=50,
        reads=1,
        **more,
    ):
        problems = tuple(Problem(f"p{i}", str(i), "v", {}, "toy") for i in range(n))
        options = {"refill": 2.0, **more}
        self.sampler = Sequential(Sequential.Config(**options))
        self.sampler.start([Source("toy", problems)], n=2, prompts_per_step=per_step, seed=3)
        self.problems = {problem.id: problem for problem in problems}
        self.engine = HeldEngine()
        assert isinstance(self.engine, BackgroundEngine)
        generator = generator_of(self.engine)
        self.buffer = GroupBuffer(self.sampler.refill, max_staleness=k, steps=steps, reads=reads)
        self.producer = Producer(
            generator,
            self.sampler,
            SamplingParams(max_tokens=5),
            self.buffer,
            in_flight=in_flight,
            check=check or (lambda: None),
        )

    def wait_until(self, reached):
        until = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < until
            time.sleep(0.005)

    def sync(self, step, version, readings=()):
        self.producer.hold(step, readings, updated=True)
        self.engine.load_weights(version, None)
        self.producer.go_on(step, version)


@pytest.fixture
def world():
    made = []

    def make(*arguments, **options):
        made.append(World(*arguments, **options))
        made[-1].producer.start(0, 0)
        return made[-1]

    yield make
    for one in made:
        one.producer.stop()
        assert not one.producer._thread.is_alive()


def names(rollouts):
    return [(one.draw.problem.id, one.group.version) for one in rollouts.kept]


def during(act, meanwhile):
    """``act`` in another thread, and ``meanwhile`` once it waits; what ``act`` gave."""
    box = []

    def run():
        box.append(act())

    thread = threading.Thread(target=run)
    thread.start()
    meanwhile()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    return box[0]


def caught(act):
    with pytest.raises(RunError) as error:
        act()
    return error.value


def test_steps_take_their_groups_in_draw_order_and_the_next_ones_are_on_their_way(world):
    one = world(1, "keep")
    assert one.engine.wait_for(4) == ["p0", "p1", "p2", "p3"]
    one.engine.answer("p1")
    one.engine.answer("p0")
    assert names(one.producer.take(0)) == [("p0", 0), ("p1", 0)]
    assert one.engine.wait_for(2) == ["p2", "p3"]  # the trainer is at work: no more than these
    assert one.producer.drawn() == 4
    assert one.producer.drawn() == 0


def test_drain_finishes_the_next_step_before_weights_change(world):
    one = world(1, "drain")
    one.engine.wait_for(2)
    one.engine.answer()
    one.producer.take(0)
    one.engine.wait_for(2)  # those of step 1
    seen = []

    def answer():
        seen.append(one.engine.version)
        one.engine.answer("p2")
        one.engine.answer("p3", text="P")  # without variance: replaced, under the old weights
        one.engine.wait_for(1)
        seen.append(one.engine.version)
        one.engine.answer()

    during(lambda: one.sync(1, 1), answer)
    assert seen == [0, 0]
    assert one.engine.version == 1
    assert one.engine.open == {}  # held until released
    one.producer.release()
    rollouts = one.producer.take(1)
    assert names(rollouts) == [("p2", 0), ("p4", 0)]
    assert [each.drop.detail for each in rollouts.dropped] == ["all_passed"]
    assert one.engine.wait_for(2) == ["p5", "p6"]
    assert {version for *_, version in one.engine.open.values()} == {1}


def test_t20_abort_draws_again_under_the_new_weights_and_keeps_what_was_finished(world):
    one = world(1, "abort")
    one.engine.wait_for(4)
    one.engine.answer("p0", "p1", "p2")
    assert names(one.producer.take(0)) == [("p0", 0), ("p1", 0)]
    one.sync(1, 1)
    assert one.engine.aborted == 1
    assert one.engine.open == {}
    one.producer.release()
    assert one.engine.wait_for(3) == ["p3", "p4", "p5"]
    first, again = [r for r in one.engine.requests if r.id.startswith("p3@")]
    assert (first.id, again.id) == ("p3@0#3", "p3@1#3")
    assert set(first.seeds).isdisjoint(again.seeds)
    one.engine.answer("p3")
    assert names(one.producer.take(1)) == [("p2", 0), ("p3", 1)]
    assert one.producer.drawn() == 2 * 4  # what was aborted was never drawn


def test_keep_lets_requests_go_on_and_late_ones_are_evicted_and_drawn_again(world):
    one = world(1, "keep")
    one.engine.wait_for(4)
    one.engine.answer("p0", "p1")
    one.producer.take(0)
    one.sync(1, 1)
    one.producer.release()
    assert one.engine.wait_for(4) == ["p2", "p3", "p4", "p5"]
    one.engine.answer("p4", "p5")  # those of version 1 come first, and step 1 takes them
    assert names(one.producer.take(1)) == [("p4", 1), ("p5", 1)]
    one.sync(2, 2)
    one.producer.release()
    one.engine.wait_for(4)
    one.engine.answer("p2")  # version 0 at version 2, two updates late
    again = one.engine.wait_for(4)
    assert sorted(again) == ["p2", "p3", "p6", "p7"]
    one.engine.answer("p2", "p6")
    rollouts = one.producer.take(2)
    assert names(rollouts) == [("p2", 2), ("p6", 2)]
    assert [(each.group.problem.id, each.drop.fate) for each in rollouts.dropped] == [
        ("p2", "stale")
    ]


def test_an_aborted_part_of_an_extended_group_joins_the_parts_before_it(world):
    one = world(1, "abort", per_step=1, adaptive=AdaptiveConfig(k_success=1, k_failure=1))
    one.engine.wait_for(2)
    one.engine.answer("p1")
    one.engine.answer("p0", text="F")  # one completion at a time: more is wanted
    one.engine.wait_for(2)
    one.engine.answer("p0", text="P")
    assert [len(each.group.members) for each in one.producer.take(0).kept] == [2]
    one.sync(1, 1)
    one.producer.release()
    one.engine.wait_for(2)
    again = [request.id for request, _, _ in one.engine.open.values()]
    assert again == ["p1@1#1+1", "p2@1#2"]
    one.engine.answer("p1", text="F")
    (kept,) = one.producer.take(1).kept
    assert [member.completion.text for member in kept.group.members] == ["P", "F"]
    assert [member.completion.version for member in kept.group.members] == [0, 1]
    assert kept.group.version == 0


def test_t21_a_step_waits_no_longer_than_the_deadline_and_says_for_what(world):
    one = world(1, "keep")
    one.engine.wait_for(4)
    one.engine.answer("p1")
    one.wait_until(lambda: one.buffer.count(0) == 1)
    one.producer._deadline = 0.2
    with pytest.raises(RunError) as error:
        one.producer.take(0)
    told = str(error.value)
    assert "step 0 waits for its groups, for 0.2 s now" in told or "did not come within" in told
    assert "3 are being generated, 0 judged" in told
    assert "p0 of version 0" in told or "p0, asked for under version 0" in told


def test_t21_a_sync_that_waits_for_unfinished_groups_has_a_deadline(world):
    one = world(1, "drain")
    one.engine.wait_for(2)
    one.engine.answer()
    one.producer.take(0)
    one.engine.wait_for(2)
    one.producer._deadline = 0.2
    with pytest.raises(RunError, match=r"weight sync before step 1 waits|did not come within"):
        one.sync(1, 1)
    assert one.engine.version == 0


def test_a_producer_that_dies_ends_every_wait_with_its_own_error(world):
    one = world(1, "keep")
    one.engine.wait_for(4)
    error = during(
        lambda: caught(lambda: one.producer.take(0)),
        lambda: one.engine.fail(RunError("the engine is on fire")),
    )
    assert "on fire" in str(error)
    for wait in (lambda: one.sync(1, 1), one.producer.quiet, lambda: one.producer.take(0)):
        with pytest.raises(RunError, match="on fire"):
            wait()


def test_t26_verifiers_that_fail_too_often_stop_the_run(world):
    def check():
        raise RunError("verifier 'v' failed on 20 of its last 20 verdicts")

    one = world(1, "keep", check=check)
    one.engine.wait_for(4)
    one.engine.answer("p0")
    with pytest.raises(RunError, match="verifier 'v' failed"):
        one.producer.take(0)


def test_a_group_to_be_read_more_often_than_was_said_is_refused(world):
    one = world(1, "keep", max_reads=2)
    one.engine.wait_for(4)
    one.engine.answer("p0")
    with pytest.raises(ConfigError, match=r"in 2 steps, .* too old after 1"):
        one.producer.take(0)


@pytest.mark.parametrize("in_flight", ["drain", "keep"])
def test_groups_read_twice_leave_every_second_step_without_draws(world, in_flight):
    one = world(2, in_flight, reads=2, max_reads=2)
    for step, sampled in ((0, 0), (2, 1)):
        two = [f"p{step}", f"p{step + 1}"]
        assert one.engine.wait_for(2) == two
        one.engine.answer()
        if step:
            one.sync(step, step)
            one.producer.release()
        rollouts = one.producer.take(step)
        assert names(rollouts) == [(two[0], sampled), (two[1], sampled)]
        assert [each.reads for each in rollouts.kept] == [2, 2]
        assert one.engine.open == {}
        one.sync(step + 1, step + 1, [Reading(sampled, 1)] * 2)
        one.producer.release()
        assert names(one.producer.take(step + 1)) == []


def test_a_step_that_reads_less_again_than_was_expected_draws_the_rest_before_the_sync(world):
    """Of one group's update nothing was applied: with drain, all is there under the old weights."""
    one = world(2, "drain", reads=2, max_reads=2)
    one.engine.wait_for(2)
    one.engine.answer()
    one.producer.take(0)
    assert one.engine.open == {}

    def answer():
        assert one.engine.wait_for(1) == ["p2"]
        assert one.engine.version == 0
        one.engine.answer()

    during(lambda: one.sync(1, 1, [Reading(0, 1)]), answer)
    one.producer.release()
    assert names(one.producer.take(1)) == [("p2", 0)]
    assert one.engine.wait_for(1) == ["p3"]  # step 2 reads p2 again


def test_a_sync_that_waits_twice_has_one_deadline(world, monkeypatch):
    """Other processes wait for both as one, and give up a minute after the deadline."""
    now = 0.0
    monkeypatch.setattr(producer, "time", SimpleNamespace(monotonic=lambda: now))
    one = world(2, "drain", reads=2, max_reads=2, per_step=3)

    def answer(*expected):
        assert one.engine.wait_for(len(expected)) == list(expected)
        one.engine.answer()

    def answer_late():
        nonlocal now
        now += 0.7 * PATIENCE
        answer("p5")
        assert one.engine.wait_for(1) == ["p6"]
        now += 0.7 * PATIENCE

    answer("p0", "p1", "p2")
    one.producer.take(0)
    during(lambda: one.sync(1, 1, [Reading(0, 1)]), lambda: answer("p3", "p4"))
    one.producer.release()
    one.producer.take(1)
    error = during(lambda: caught(lambda: one.sync(2, 2, [Reading(0, 1)])), answer_late)
    assert "weight sync before step 2 waits" in str(error)


def test_t33_a_step_at_the_cap_of_refills_takes_what_there_is(world):
    one = world(1, "drain", refill=1.0, steps=2)
    one.engine.scripts = {"p0": "P", "p1": "F", "p2": "P"}
    for problems in (["p0", "p1"], ["p2", "p3"]):
        assert one.engine.wait_for(2) == problems
        one.engine.answer()
    rollouts = one.producer.take(0)
    assert names(rollouts) == [("p3", 0)]
    assert len(rollouts.dropped) == 3
    assert one.engine.wait_for(2) == ["p4", "p5"]
    one.engine.answer()
    one.sync(1, 1)
    one.producer.release()
    assert names(one.producer.take(1)) == [("p4", 0), ("p5", 0)]
    one.sync(2, 2)
    one.producer.release()
    one.producer.quiet()
    assert one.engine.open == {}  # the run is over: nothing more is asked for


def answering(one, act):
    """``act`` in another thread, while every request is answered; what ``act`` gave."""
    box = []
    thread = threading.Thread(target=lambda: box.append(act()))
    thread.start()
    until = time.monotonic() + PATIENCE
    while thread.is_alive() and time.monotonic() < until:
        one.engine.answer()
        thread.join(0.001)
    assert not thread.is_alive()
    return box[0]


def test_t27_a_problem_of_two_epochs_in_flight_at_once_is_two_draws(world):
    one = world(2, "abort", n=3)
    assert one.engine.wait_for(6) == ["p0", "p1", "p2"] * 2
    assert len({seed for request in one.engine.requests for seed in request.seeds}) == 12
    one.engine.answer("p0", "p1")
    taken = one.producer.take(0).kept
    one.sync(1, 1)  # aborts both draws of p2
    one.producer.release()
    assert one.engine.wait_for(4) == ["p2", "p2", "p0", "p1"]
    for step in (1, 2):
        taken += answering(one, lambda step=step: one.producer.take(step)).kept
        one.sync(step + 1, step + 1)
        one.producer.release()
    assert sorted(each.draw.index for each in taken) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("in_flight", ["drain", "abort", "keep"])
def test_what_is_held_is_saved_whole_and_goes_on_elsewhere(world, in_flight):
    one = world(2, in_flight)
    answering(one, lambda: one.producer.take(0))
    answering(one, one.producer.quiet)
    assert one.producer.drawn() == len([r for r in one.engine.requests for _ in r.seeds])
    state, place = one.producer.state_dict(), one.sampler.state_dict()
    assert state["lots"] or in_flight == "drain"
    other = World(2, in_flight)
    other.sampler.load_state_dict(place)
    other.producer.load_state_dict(state, other.problems)
    other.producer.start(0, 0)
    one.producer.release()
    try:
        found = [answering(w, lambda w=w: names(w.producer.take(1))) for w in (one, other)]
    finally:
        other.producer.stop()
    assert found[0] == found[1] == [("p2", 0), ("p3", 0)]
