"""How often the groups of a replay buffer have been trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlvr_core.api import Group
    from rlvr_core.builtin.invariants.check import StepView

Name = tuple[str, int, int]
"""Problem, policy version and tokens of a group: the same after it was saved and loaded."""


class Reads:
    """Counts the steps that trained on each group.

    Args:
        most: Steps that may train on one group.
        oldest: Policy versions that a group may be behind.
    """

    def __init__(self, most: int, oldest: int) -> None:
        self._most = most
        self._kept = max(64, 4 * oldest, 16 * most)
        self._reads: Counter[Name] = Counter()
        self._came: Counter[Name] = Counter()
        self._names: list[Name] = []
        self._skipped = False

    def arrived(self, groups: Sequence[Group]) -> None:
        """Count groups that come from generation."""
        self._came.update(map(_name, groups))

    def wrong(self, groups: Sequence[Group]) -> str:
        """Return which group of a step was read too often before; empty if none was."""
        self._skipped = False
        self._names = [_name(group) for group in groups]
        for group, name in zip(groups, self._names, strict=True):
            reads = self._reads[name] + 1
            # one problem drawn twice under one version may be answered alike
            if reads > self._most * max(1, self._came[name]):
                return (
                    f"the group of problem {group.problem.id}, sampled under policy version "
                    f"{group.version}, would be trained on in a step for the {reads}th time"
                )
        return ""

    def skipped(self) -> None:
        """An update was skipped: the step counts as no read."""
        self._skipped = True

    def read(self, view: StepView) -> None:
        """Count the reads of a step whose updates are done, and forget groups of long ago."""
        if view.update and not self._skipped:
            self._reads.update(self._names)
        # a group that is read at all is read within so many steps of its first one
        old, newest = view.version - self._kept, set(self._names)
        for counts in (self._reads, self._came):
            for one in [one for one in counts if one[1] < old and one not in newest]:
                del counts[one]


def _name(group: Group) -> Name:
    tokens = hash(tuple(member.completion.token_ids for member in group.members))
    return group.problem.id, group.version, tokens
