"""The buffer of groups made ahead: nothing lost, nothing twice, never too much, never too old."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rlvr_core.api import Completion, Draw, Drop, Group, Judged, Problem, Usage, Verdict
from rlvr_core.api.rollouts import Sampled
from rlvr_core.rollout.ahead.buffer import GroupBuffer
from rlvr_core.rollout.replay import Reading, ReplayBuffer
from rlvr_core.run.metrics import rollout_metrics

PER_STEP, STEPS = 3, 30
PROBLEMS = {f"p{i}": Problem(f"p{i}", "?", "v", {}, "toy") for i in range(10_000)}
ZERO = Drop("zero_variance", "all_failed")


def refill(kept, drawn):
    return max(0, min(PER_STEP - kept, 2 * PER_STEP - drawn))


def sampled(draw, version, drop=None, reads=1):
    completion = Completion((1,), (2, 3), (-0.5, -0.25), (True, True), "t", "stop", version)
    member = Judged(completion, {"v": Verdict(1.0, passed=True)}, 1.0, True)
    group = Group(draw.problem, (member,) * draw.n, version)
    return Sampled(draw, "prompt", group, drop, reads)


def draw(index, n=2):
    return Draw(PROBLEMS[f"p{index}"], n, index)


def buffer(max_staleness, reads=1):
    return GroupBuffer(refill, max_staleness=max_staleness, steps=STEPS, reads=reads)


class Life(RuleBasedStateMachine):
    """Any order of events that a run may bring; ``aired`` has the version each flies under.

    Groups are read in up to ``reads`` steps, by a replay buffer as a session has it.
    """

    @initialize(k=st.integers(0, 4), data=st.data())
    def begin(self, k, data):
        self.k = k
        self.reads = data.draw(st.integers(1, max(1, k)))
        self.replay, self.read = ReplayBuffer(), Counter()
        self.buffer = buffer(k, self.reads)
        self.buffer.advance(0, 0)
        self.step = self.version = self.launched = 0
        self.aired = {}
        self.waiting_again, self.kept, self.dropped, self.trained = [], set(), set(), set()
        self.stale = 0

    @rule()
    def draw_new(self):
        for _, wanted in self.buffer.orders():
            new = [draw(self.launched + i) for i in range(wanted)]
            self.launched += wanted
            self.buffer.launch(new)
            self.aired |= {one.index: self.version for one in new}
        assert self.buffer.orders() == []

    @rule()
    def draw_again(self):
        again = [one.index for one in self.buffer.launch_again()]
        assert sorted(again) == sorted(self.waiting_again)
        self.waiting_again = []
        self.aired |= dict.fromkeys(again, self.version)

    @precondition(lambda self: self.aired)
    @rule(data=st.data(), zero=st.booleans())
    def land(self, data, zero):
        index = data.draw(st.sampled_from(sorted(self.aired)))
        version = self.aired.pop(index)
        self.buffer.arrive(sampled(draw(index), version, ZERO if zero else None, self.reads))
        if zero:
            self.dropped.add(index)
        elif version < self.version - self.k:
            self.waiting_again.append(index)
            self.stale += 1
        else:
            self.kept.add(index)

    @precondition(lambda self: self.aired)
    @rule(data=st.data())
    def abort(self, data):
        index = data.draw(st.sampled_from(sorted(self.aired)))
        del self.aired[index]
        self.buffer.give_back(draw(index))
        self.waiting_again.append(index)

    @precondition(lambda self: self.step < STEPS and self.buffer.ready(self.step))
    @rule(updated=st.booleans())
    def train(self, updated):
        rollouts = self.buffer.take(self.step)
        taken = [one.draw.index for one in rollouts.kept]
        assert taken == sorted(taken)
        assert len(taken) <= PER_STEP
        assert all(0 <= self.version - one.group.version <= self.k for one in rollouts.kept)
        assert self.kept.issuperset(taken)
        self.kept -= set(taken)
        assert self.trained.isdisjoint(taken)
        self.trained |= set(taken)
        again = self.replay.waiting(PER_STEP)[: PER_STEP - len(taken)]
        assert all(self.version - one.group.version <= self.k for one in again)
        if updated:
            self.replay.take(len(again))
            self.read.update([*taken, *(one.draw.index for one in again)])
            assert max(self.read.values(), default=0) <= self.reads
            for one in rollouts.kept:
                self.replay.put(one)
        self.stale -= sum(one.drop.fate == "stale" for one in rollouts.dropped)
        gone = {one.draw.index for one in rollouts.dropped if one.drop == ZERO}
        assert self.dropped.issuperset(gone)
        self.dropped -= gone
        self.trained |= gone
        self.step += 1
        self.version += updated
        self.replay.expire(self.version - self.k)
        self.buffer.reread(self.replay.readings())
        before = self.buffer.again
        self.buffer.advance(self.step, self.version)
        evicted = self.buffer.again - before
        if evicted:
            again = [one["index"] for one in self._lots("dropped") if one["drop"][0] == "stale"]
            new = set(again) & self.kept
            assert len(new) == evicted
            self.kept -= new
            self.waiting_again += new
            self.stale += evicted

    @rule()
    def killed_and_resumed(self):
        """What was flying is drawn again; all else is as it was, whatever JSON makes of it."""
        state = json.loads(json.dumps(self.buffer.state_dict()))
        self.buffer = buffer(self.k, self.reads)
        self.buffer.load_state_dict(state, PROBLEMS)
        self.buffer.reread(self.replay.readings())
        self.buffer.advance(self.step, self.version)
        self.waiting_again += self.aired
        self.aired = {}

    def _lots(self, part):
        return [one for lot in self.buffer.state_dict()["lots"] for one in lot[part]]

    @invariant()
    def conservation(self):
        """Each draw is in exactly one place."""
        if not hasattr(self, "buffer"):
            return
        places = [set(self.aired), set(self.waiting_again), self.kept, self.dropped, self.trained]
        assert sum(map(len, places)) == len(set.union(*places)) == self.launched
        assert {one["index"] for one in self._lots("kept")} == self.kept
        assert self.buffer.flying == len(self.aired)
        assert self.buffer.again == len(self.waiting_again) == len(set(self.waiting_again))
        fates = [one["drop"][0] for one in self._lots("dropped")]
        assert fates.count("stale") == self.stale
        assert fates.count("zero_variance") == len(self.dropped)

    @invariant()
    def t23_bound(self):
        """What is made or waits is never more than the steps that are allowed can take."""
        if hasattr(self, "buffer"):
            waiting = self.buffer.flying + self.buffer.again + len(self.kept)
            assert waiting <= PER_STEP * (self.k - self.reads + 2)

    @invariant()
    def t21_t22_no_deadlock(self):
        """Whoever waits for a step waits for something that is on its way or can be ordered."""
        if hasattr(self, "buffer") and self.step < STEPS and not self.buffer.ready(self.step):
            assert self.buffer.flying or self.buffer.again or self.buffer.orders()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


def test_a_stale_group_is_drawn_again_and_its_lot_opens_again():
    one = buffer(1)
    one.advance(0, 0)
    first = [draw(i) for i in range(6)]
    assert one.orders() == [(0, 3), (1, 3)]
    one.launch(first)
    for each in first[:5]:
        one.arrive(sampled(each, 0))
    assert one.take(0).kept[0].draw.index == 0
    one.advance(1, 2)  # version 2, of which 0 is more than one update away
    assert (one.flying, one.again, one.count(1)) == (1, 2, 0)
    assert one.orders() == [(2, 3)]  # two again and one in the air are what step 1 wants
    assert [each.index for each in one.launch_again()] == [3, 4]
    one.arrive(sampled(first[5], 0))  # sampled too long ago: it is late
    assert one.again == 1
    for each in (3, 4):
        one.arrive(sampled(first[each], 2))
    one.launch_again()
    one.arrive(sampled(first[5], 2))
    rollouts = one.take(1)
    assert [each.draw.index for each in rollouts.kept] == [3, 4, 5]
    assert [(each.draw.index, each.drop.fate) for each in rollouts.dropped] == [
        (3, "stale"),
        (4, "stale"),
        (5, "stale"),
    ]
    assert [each.group.version for each in rollouts.dropped] == [0, 0, 0]


def test_t21_the_last_steps_are_not_overrun_and_a_short_lot_ends():
    one = GroupBuffer(refill, max_staleness=3, steps=2)
    one.advance(0, 0)
    assert one.orders() == [(0, 3), (1, 3)]
    one.exhausted(0)
    one.exhausted(1)
    assert one.ready(0)
    assert one.take(0).kept == []
    one.advance(1, 0)
    assert one.take(1).kept == []
    one.advance(2, 0)
    assert one.orders() == []


def test_lots_ahead_are_steps_and_staleness_is_updates():
    """Four updates a step: of 4 and of 7 updates one step is ahead, of 8 two."""
    for most, steps in ((4, 2), (7, 2), (8, 3)):
        one = GroupBuffer(refill, max_staleness=most, steps=9, updates_per_step=4)
        one.advance(0, 0)
        assert [step for step, _ in one.orders()] == list(range(steps))


def test_what_a_step_reads_again_it_does_not_draw():
    """Two reads within two updates: one step is ahead, and every second one generates nothing."""
    one = buffer(2, reads=2)
    one.advance(0, 0)
    assert one.orders() == [(0, 3)]  # all that step 0 is to keep, step 1 reads again
    one.launch([draw(0), draw(1), draw(2)])
    one.arrive(sampled(draw(0), 0, reads=2))
    one.arrive(sampled(draw(1), 0, ZERO))
    one.arrive(sampled(draw(2), 0, reads=1))  # of a sampler that has this one read once
    assert one.orders() == [(0, 1), (1, 1)]  # the third is to be read by step 0 alone
    one.launch([draw(3)])
    one.arrive(sampled(draw(3), 0, reads=2))
    assert one.ready(0)
    assert one.orders() == [(1, 1)]
    assert len(one.take(0).kept) == 3
    assert one.orders() == [(1, 1)]  # as before it was taken
    one.reread([Reading(0, 1)])  # the update of the other was skipped
    assert one.orders() == [(1, 2)]
    one.advance(1, 1)
    # step 1 reads one for the last time and leaves two new ones, so step 2 wants one
    assert one.orders() == [(1, 2), (2, 1)]


def test_a_group_too_old_to_be_read_again_is_not_counted_on():
    """Sampled under version 0 and late: at version 2 it may be read, at version 3 not again."""
    one = buffer(2, reads=2)
    one.advance(2, 2)
    one.launch([draw(i) for i in range(3)])
    for index, version in enumerate([0, 1, 2]):
        one.arrive(sampled(draw(index), version, reads=2))
    assert one.ready(2)
    assert one.orders() == [(3, 1)]
    assert len(one.take(2).kept) == 3
    assert one.orders() == [(3, 1)]


def test_what_a_full_step_has_no_room_to_read_again_is_left_for_the_next():
    """After a skipped update: three wait to be read again, and three new ones are there."""
    one = buffer(4, reads=2)
    one.advance(1, 1)
    one.launch([draw(i) for i in range(3)])
    for index in range(3):
        one.arrive(sampled(draw(index), 1, reads=2))
    one.reread([Reading(0, 1)] * 3)
    # step 1 trains on the new ones, step 2 reads the old ones again, step 3 the new ones
    assert one.orders() == [(4, 3)]
    assert len(one.take(1).kept) == 3
    assert one.orders() == [(4, 3)]


@pytest.mark.parametrize("aborted", [False, True])
def test_the_last_step_waits_for_what_it_no_longer_wants(aborted):
    """Step 1 was skipped, so step 2, the last, reads again what two groups were to come for."""
    one = GroupBuffer(refill, max_staleness=2, steps=3, reads=2)
    one.advance(0, 0)
    one.launch([draw(i) for i in range(3)])
    for index in range(3):
        one.arrive(sampled(draw(index), 0, reads=2))
    one.take(0)
    left = [Reading(0, 1)] * 3
    one.reread(left)
    one.advance(1, 1)
    assert one.orders() == [(2, 3)]
    one.launch([draw(i) for i in range(3, 6)])
    assert one.take(1).kept == []
    if aborted:
        one.give_back(draw(5))
    one.reread(left)
    one.advance(2, 1)
    assert one.orders() == []
    for index in (3, 4, 5):
        assert not one.ready(2)  # there is no later step for it to go to
        if index == 5:
            one.launch_again()
        one.arrive(sampled(draw(index), 1, reads=2))
    assert one.ready(2)
    assert [each.draw.index for each in one.take(2).kept] == [3, 4, 5]


def test_what_judges_took_survives_a_checkpoint():
    """It is counted in the step that takes the group, after the run was resumed."""
    one, other = buffer(1), buffer(1)
    one.advance(0, 0)
    one.launch([draw(0, n=1)])
    whole = sampled(draw(0, n=1), 0)
    verdict = Verdict(0.5, usage=Usage(2, 30, 4, 1.5, 0.25))
    member = replace(whole.group.members[0], verdicts={"judge": verdict})
    one.arrive(replace(whole, group=replace(whole.group, members=(member,))))
    other.load_state_dict(json.loads(json.dumps(one.state_dict())), PROBLEMS)
    taken = other.take(0)
    assert [each.group.members for each in taken.kept] == [(member,)]
    assert rollout_metrics(taken)["verify/cost"] == 0.25
