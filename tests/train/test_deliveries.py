"""Every drawn group arrives once, and is trained on or dropped for a reason."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_invariants import run_config  # type: ignore

from rlvr_core.api import (
    Completion,
    Drop,
    Group,
    GroupsScored,
    Judged,
    Keep,
    Problem,
    RunError,
    SamplerTraits,
)
from rlvr_core.builtin.invariants.deliveries import Deliveries
from rlvr_core.builtin.invariants.tokens import Tokens
from rlvr_core.builtin.samplers.base import SamplerBase
from rlvr_core.config.model import TrainSection


class Sampler(SamplerBase):
    """Counts draws as every sampler does."""

    def __init__(self, max_reads=1):
        self._drawn = 0
        self.traits = SamplerTraits(max_reads=max_reads)


Sampler.__abstractmethods__ = frozenset()


def config(**train):
    return run_config(TrainSection(steps=9, **train))


def group(name, rewards=(0.0, 1.0), version=0, finish="stop"):
    members = tuple(
        Judged(Completion((1,), (2,), (-1.0,), (True,), "x", finish, version), {}, r, r == 1)
        for r in rewards
    )
    return Group(Problem(name, "?", "core/exact", {}, "toy"), members, version)


def started(max_reads=1, **train):
    sampler = Sampler(max_reads)
    found = Deliveries(config(**train), sampler)
    found.start(resumed=False)
    return found, sampler


def test_healthy_steps():
    found, sampler = started()
    for version in range(3):
        equal = group("b", (1.0, 1.0), version)
        new = [group("a", version=version), equal, group("a", version=version)]
        sampler._drawn += 3
        assert found.arrived(new, version) == ""
        assert found.trained([new[0], new[2]]) == ""
        assert found.trained(new) == ""  # drop_zero_variance: false
    assert found.arrived([], 3) == ""


def test_a_group_that_does_not_arrive():
    found, sampler = started()
    sampler._drawn += 3
    assert "3 groups were drawn for this step and 2" in found.arrived([group("a"), group("b")], 0)


def test_a_group_of_the_step_before():
    found, sampler = started()
    one = group("a")
    sampler._drawn += 1
    assert found.arrived([one], 0) == ""
    sampler._drawn += 1
    assert "problem a was drawn for an earlier step" in found.arrived([one], 1)
    found, sampler = started()
    for _ in range(2):  # a step that made no update has the version of the one before
        sampler._drawn += 1
        found.arrived([one], 0)
    sampler._drawn += 1
    assert "trained on twice" in found.arrived([one], 0)


def test_a_kept_group_that_is_not_trained_on_and_one_that_is_in_twice():
    found, sampler = started()
    new = [group("a"), group("b"), group("c", (1.0, 1.0))]
    sampler._drawn += 3
    assert found.arrived(new, 0) == ""
    assert "1 of 3 groups have rewards that differ" in found.trained([new[0]])
    assert "problem b" in found.trained([new[0]])
    assert "in the step twice" in found.trained([new[0], new[1], new[1]])
    assert "none of this step: that of problem z" in found.trained([*new, group("z")])


def test_groups_ahead_of_training_are_dropped_for_a_reason():
    """Two updates of staleness: at version 5 a group of version 2 may have expired."""
    found, _ = started(max_staleness=2)
    new = [group("a", version=5), group("b", version=3), group("c", (1.0, 1.0), 4)]
    assert found.arrived([*new, group("old", version=2)], 5) == ""
    assert found.trained(new[:2]) == ""
    assert "1 of 4 groups have rewards that differ" in found.trained(new[:1])
    assert "problem b" in found.trained(new[:1])


def test_other_samplers_drop_what_they_like_ahead_of_training():
    class Choosy(Sampler):
        def observe(self, group):
            return Keep(1)

    found = Deliveries(config(max_staleness=2), Choosy())
    found.start(resumed=False)
    assert found.arrived([group("a", version=5)], 5) == found.trained([]) == ""


def test_what_all_dropped_groups_have_in_common_is_said():
    found, sampler = started()
    new = [group("a"), group("b", finish="length"), group("c", finish="length")]
    sampler._drawn += 3
    assert found.arrived(new, 0) == ""
    assert "completion that was cut off" in found.trained([new[0]])
    assert "cut off" not in found.trained([new[0], new[1]])
    assert "cut off" not in found.trained([new[1]])


def test_groups_that_are_read_again_are_no_fault():
    found, sampler = started(max_reads=2)
    new = [group("a", version=4)]
    sampler._drawn += 1
    assert found.arrived(new, 4) == ""
    assert found.trained([*new, group("old", version=3)]) == ""


def test_groups_that_wait_to_be_read_again():
    """Three readings each, at most two groups a step that wait."""
    a, b, c = (group(name, version=0) for name in "abc")

    def reading(*steps, resumed=False, applied=True):
        found, sampler = started(3, prompts_per_step=2)
        if resumed:
            found.start(resumed=True)
        said = ""
        for new, again in steps:
            sampler._drawn += len(new)
            version = sampler._drawn
            new = [replace(one, version=version) for one in new]
            assert found.arrived(new, version) == ""
            kept.update({one.problem.id: one for one in new})
            said = said or found.trained([*new, *(kept[one.problem.id] for one in again)])
            found.ended(applied=applied)
        return said

    kept = {}
    assert reading(([a, b], []), ([], [a, b]), ([], [a, b]), ([c], []), ([], [c])) == ""
    assert reading(([a, b, c], []), ([], [a, b]), ([], [c, a])) == ""
    lost = (
        "the sampler's max_reads is 3, and 1 of 2 groups that wait to be read again are not in "
        "this step: "
    )
    assert reading(([a, b], []), ([], [b])) == f"{lost}that of problem a"
    assert reading(([a, b, c], []), ([], [a, b]), ([], [b, a])) == f"{lost}that of problem c"
    assert "2 of 2 groups" in reading(([a, b], []), ([c], []))
    assert reading(([a, b], []), ([c], []), resumed=True) == ""
    assert reading(([a, b], []), ([c], []), applied=False) == ""  # nothing was read


def test_a_resumed_run_counts_from_where_it_stands():
    found, sampler = started()
    sampler._drawn = 40
    found.start(resumed=True)
    sampler._drawn = 41
    assert found.arrived([group("a")], 0) == ""


def test_other_samplers_and_groups_sampled_ahead_are_left_alone():
    class Own(Sampler):
        def observe(self, group):
            return Drop("unscorable") if group.problem.id == "a" else Keep()

    for found in (
        Deliveries(config(), Own()),
        Deliveries(config(max_staleness=1), Sampler()),
        Deliveries(config(), SimpleNamespace(drawn=3)),
        Deliveries(config(), None),
    ):
        found.start(resumed=False)
        assert found.arrived([group("a")], 5) == ""
        assert found.trained([]) == ""


def test_the_guard_says_so():
    sampler = Sampler()
    guard = Tokens(config(), sampler)
    guard.run_started(SimpleNamespace(resumed=False))
    sampler._drawn += 2
    with pytest.raises(RunError, match=r"guard tokens: 2 groups were drawn") as caught:
        guard.on_groups(GroupsScored(3, 0, (group("a"),)))
    assert "step 4" in str(caught.value)
    sampler._drawn += 1
    kept = group("a")
    guard.on_groups(GroupsScored(4, 0, (kept,)))
    with pytest.raises(RunError, match="1 of 1 groups have rewards that differ"):
        guard.begin(SimpleNamespace(step=4, groups=[]))
