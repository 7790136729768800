"""Groups trained on several times: order, number of reads, and a state that holds all of it."""

from __future__ import annotations

import json
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_core.api import Completion, Draw, Group, Judged, Problem, Usage, Verdict
from rlvr_core.api.rollouts import Sampled
from rlvr_core.rollout.replay import Reading, ReplayBuffer

PROBLEMS = {f"p{i}": Problem(f"p{i}", "?", "v", {"answer": i}, "toy") for i in range(99)}


def sampled(index, reads):
    problem = PROBLEMS[f"p{index}"]
    completion = Completion(
        (1, 2), (3, 4), (-0.1 - index, -1 / 3), (True, False), "t\u2028", "length", 5
    )
    verdicts = {
        "v": Verdict(0.1, "ok", None, {"b": 0.2, "a": 0.3}, "x", "rule"),
        "w": Verdict(None, "timeout", detail="5 s"),
        "judge": Verdict(0.5, usage=Usage(2, 30, 4, 1.5, 0.25)),
    }
    members = (Judged(completion, verdicts, 0.1, False), Judged(completion, verdicts, None, None))
    return Sampled(Draw(problem, 2, index), "prompt", Group(problem, members, 5), reads=reads)


def indices(taken):
    return [one.draw.index for one in taken]


def test_by_hand():
    buffer = ReplayBuffer()
    assert buffer.take(3) == []
    for index, reads in enumerate([1, 3, 2]):
        buffer.put(sampled(index, reads))
    assert len(buffer) == 2  # the first was read as often as it may be
    assert indices(buffer.waiting(9)) == indices(buffer.waiting(9)) == [1, 2]
    assert indices(buffer.waiting(1)) == [1]  # looking is not reading
    assert indices(buffer.take(1)) == [1]
    assert indices(buffer.take(9)) == [2, 1]
    assert buffer.take(9) == []


def test_what_is_too_old_for_its_last_reads_is_given_up():
    buffer = ReplayBuffer()
    for index in range(3):
        buffer.put(sampled(index, 2 + index))
    assert buffer.readings() == [Reading(5, 1), Reading(5, 2), Reading(5, 3)]
    assert buffer.expire(5) == 0
    assert indices(buffer.waiting(9)) == [0, 1, 2]
    assert buffer.expire(6) == 3
    assert buffer.waiting(9) == buffer.readings() == []


def test_what_no_update_was_made_of_is_not_read():
    buffer = ReplayBuffer()
    for index in range(3):
        buffer.put(sampled(index, 2))
    assert indices(buffer.take(3, unread=[1])) == [0, 1, 2]
    assert indices(buffer.take(3)) == [1]
    assert len(buffer) == 0


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(1, 4), max_size=3), st.integers(0, 4)), max_size=12),
    st.integers(0, 12),
)
def test_each_group_is_read_as_often_as_it_may_be_and_a_state_round_trip_is_exact(steps, cut):
    buffer, reads, allowed = ReplayBuffer(), Counter(), {}
    for number, (new, most) in enumerate(steps):
        if number == cut:
            state = json.loads(json.dumps(buffer.state_dict()))
            resumed = ReplayBuffer()
            resumed.load_state_dict(state, PROBLEMS)
            assert resumed.state_dict() == buffer.state_dict()
            buffer = resumed
        taken = buffer.take(most)
        assert len(set(indices(taken))) == len(taken) <= most
        assert all(one == sampled(one.draw.index, one.reads) for one in taken)
        reads.update(indices(taken))
        for count in new:
            index = len(allowed)
            allowed[index] = count
            reads[index] += 1
            buffer.put(sampled(index, count))
    while len(buffer):
        reads.update(indices(buffer.take(2)))
    assert reads == allowed
