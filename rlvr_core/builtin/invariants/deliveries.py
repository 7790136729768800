"""Every group that was drawn is delivered once, and trained on or dropped for a reason.

Held where generation and training take turns and the sampler is one whose ``draw`` and ``observe``
are those of all samplers: others may drop what they like. Of what is sampled ahead, and may expire,
it is held that no group is dropped which has a signal and is not too old.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_core.api import Group
    from rlvr_core.api.services import RunConfig

HOME = "rlvr_core.builtin.samplers.base"
"""Where the draws and decisions that are understood here come from."""

DIFFER = 1e-9
"""Rewards that differ by more make a group that is kept."""


class Deliveries:
    """Compares what the sampler drew, what arrived, and what is trained on.

    Args:
        config: The run's configuration.
        sampler: Chooses the problems; None where there is none.
    """

    def __init__(self, config: RunConfig, sampler: Any) -> None:
        known = all(is_ours(sampler, name) for name in ("draw", "observe"))
        in_turns = config.train.max_staleness == 0
        self._sampler = sampler if known and in_turns else None
        self._oldest: int | None = None
        self._ahead = (
            0 if in_turns or not is_ours(sampler, "observe") else config.train.max_staleness
        )
        self._drawn: int | None = None
        self._new: Sequence[Group] = ()
        self._before: Sequence[Group] = ()
        self._most = config.train.prompts_per_step
        self._step: Sequence[Group] = ()
        self._reads = 1
        self._queue: deque[tuple[Group, int]] | None = None

    def start(self, *, resumed: bool) -> None:
        """The run begins, or goes on: then it is not known what waits to be read again."""
        if self._sampler is not None:
            self._drawn = self._sampler.drawn
            self._reads = self._sampler.traits.max_reads
            self._queue = deque() if self._reads > 1 and not resumed else None

    def arrived(self, groups: Sequence[Group], version: int) -> str:
        """Return what is wrong with the groups of a step, dropped ones included; empty if nothing.

        Args:
            groups: They, as the step has them.
            version: Policy version of the step.
        """
        if self._ahead:
            self._new, self._oldest = groups, version - self._ahead
        if self._sampler is None or self._drawn is None:
            return ""
        drawn, self._drawn = self._sampler.drawn - self._drawn, self._sampler.drawn
        self._before, self._new = self._new, groups
        if drawn != len(groups):
            return (
                f"{drawn} groups were drawn for this step and {len(groups)} of them arrived: "
                "completions are lost, or counted twice, before the ledger has them"
            )
        known = {id(group) for group in self._before}
        for group in groups:
            again = id(group) in known
            if again or group.version != version:
                return (
                    f"the group of problem {group.problem.id} was drawn for an earlier step "
                    f"(policy version {group.version}, now {version}) and would be trained on twice"
                )
            known.add(id(group))
        return ""

    def trained(self, groups: Sequence[Group]) -> str:
        """Return what is wrong with the groups that a step trains on; empty if nothing."""
        if self._oldest is not None:
            return self._lost(groups)
        if self._sampler is None or self._drawn is None:
            return ""
        taken = [id(group) for group in groups]
        if len(set(taken)) != len(taken):
            return "a group is in the step twice"
        if what := self._lost(groups):
            return what
        new = {id(group) for group in self._new}
        odd = [group for group in groups if id(group) not in new]
        if odd and self._reads == 1:
            return f"{len(odd)} groups are none of this step: that of problem {odd[0].problem.id}"
        self._step = groups
        return self._not_read_again(odd)

    def _lost(self, groups: Sequence[Group]) -> str:
        """Return which groups of the step were dropped though their rewards differ."""
        taken = {id(group) for group in groups}
        lost = [
            group
            for group in self._new
            if id(group) not in taken
            and _has_signal(group)
            and (self._oldest is None or group.version >= self._oldest)
        ]
        if not lost:
            return ""
        return (
            f"{len(lost)} of {len(self._new)} groups have rewards that differ and are dropped, "
            f"not trained on: that of problem {lost[0].problem.id}{_in_common(lost, groups)}"
        )

    def _not_read_again(self, again: Sequence[Group]) -> str:
        """Return which groups wait for another reading and do not get it."""
        known = {id(group) for group in again}
        due = [group for group, _ in islice(self._queue or (), self._most)]
        lost = [group for group in due if id(group) not in known]
        if not lost:
            return ""
        return (
            f"the sampler's max_reads is {self._reads}, and {len(lost)} of "
            f"{len(due)} groups that wait to be read again are not in this step: that of problem "
            f"{lost[0].problem.id}"
        )

    def ended(self, *, applied: bool) -> None:
        """Follow the queue of groups that are read in several steps.

        Args:
            applied: Whether all updates of the step were; otherwise what waits is not known.
        """
        if self._queue is None or not applied:
            self._queue = None
            return
        new = {id(group) for group in self._new}
        again = sum(id(group) not in new for group in self._step)
        taken = [self._queue.popleft() for _ in range(min(again, len(self._queue)))]
        self._queue.extend((group, left - 1) for group, left in taken if left > 1)
        self._queue.extend((group, self._reads - 1) for group in self._step if id(group) in new)


def is_ours(sampler: Any, method: str) -> bool:
    """Whether a sampler's method is that of all samplers, and not its own."""
    kinds = type(sampler).__mro__
    return next((one.__module__ for one in kinds if method in vars(one)), "") == HOME


def _in_common(lost: Sequence[Group], kept: Sequence[Group]) -> str:
    """Say what all groups that were lost have, and none that is kept."""
    if all(map(_is_cut, lost)) and not any(map(_is_cut, kept)):
        return "; they are the groups with a completion that was cut off (finish_reason: length)"
    return ""


def _is_cut(group: Group) -> bool:
    return any(member.completion.finish_reason == "length" for member in group.members)


def _has_signal(group: Group) -> bool:
    rewards = [member.reward for member in group.members if member.reward is not None]
    return len(rewards) >= 2 and max(rewards) - min(rewards) > DIFFER
