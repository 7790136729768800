"""What one step has to train on: judged groups, and what became of each of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from rlvr_core.api.types.group import Group, Judged
from rlvr_core.api.types.sampling import Draw, Drop, Fate

Ages = Counter[tuple[Fate | Literal["reread"], int]]
"""Completions by fate and by the updates between their sampling and the step; ``reread`` are those
of earlier steps that the step trained on again."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A group, what became of it, and of each of its completions.

    Attributes:
        draw: The sampler's order it answers.
        prompt_text: The prompt as the model saw it, decoded.
        group: Its judged completions.
        drop: Why it is not trained on; None when it is, and in evaluation.
        reads: In how many steps it is trained on.
    """

    draw: Draw
    prompt_text: str
    group: Group
    drop: Drop | None = None
    reads: int = 1

    def fates(self) -> list[Fate]:
        """The ledger column of each completion, in order."""
        return [self._fate(member) for member in self.group.members]

    def _fate(self, member: Judged) -> Fate:
        if member.reward is None:
            statuses = {verdict.status for verdict in member.verdicts.values()}
            return "error" if statuses & {"error", "timeout"} else "unscorable"
        return self.drop.fate if self.drop else "trained"


@dataclass(slots=True)
class Rollouts:
    """The groups of one step.

    Attributes:
        kept: New groups to train on, in draw order.
        dropped: The other new groups, in draw order.
        replayed: Groups of earlier steps that are trained on again.
    """

    kept: list[Sampled] = field(default_factory=list)
    dropped: list[Sampled] = field(default_factory=list)
    replayed: list[Sampled] = field(default_factory=list)

    @property
    def all(self) -> list[Sampled]:
        """New groups, kept and dropped together, in draw order."""
        return sorted(self.kept + self.dropped, key=lambda sampled: sampled.draw.index)

    @property
    def drawn(self) -> int:
        """New groups."""
        return len(self.kept) + len(self.dropped)

    @property
    def trained(self) -> list[Group]:
        """The groups to train on: new ones first, then replayed ones."""
        return [one.group for one in [*self.kept, *self.replayed]]
