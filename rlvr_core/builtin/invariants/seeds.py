"""Seeds that a step's completions and worlds may have had: published functions of the draws."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_core.api import Group, GroupsScored
    from rlvr_core.api.services import RunConfig


class Seeds:
    """Follows the sampler's draws, from which the seeds of a group follow.

    Args:
        config: The run's configuration.
        sampler: Chooses the problems; counts its draws.
    """

    def __init__(self, config: RunConfig, sampler: Any) -> None:
        self._sampler, self._seed, self._train = sampler, config.run.seed, config.train
        self._first = self._drawn = 0
        self._places: dict[int, int] = {}

    @property
    def exact(self) -> bool:
        """Whether the draw of each group is known: the engine and the trainer take turns."""
        return self._train.max_staleness == 0

    def run_started(self) -> None:
        """Begin where the sampler is, which goes on from a checkpoint."""
        self._drawn = self._sampler.drawn

    def on_groups(self, event: GroupsScored) -> None:
        """Follow the draws of a step, whose groups are in their order, dropped ones included."""
        self._first, self._drawn = self._drawn, self._sampler.drawn
        self._places = {id(group): place for place, group in enumerate(event.groups)}

    def known(self, group: Group, now: int) -> bool:
        """Whether the draw of a group is among ``draws``, at a version of the policy.

        Those of groups that are read again, of an older policy, are not.
        """
        return now - group.version <= self._train.max_staleness

    def place(self, group: Group) -> int:
        """Return a group's place in the step."""
        return self._places[id(group)]

    def draws(self, group: Group) -> range:
        """Return the draws that a group of this step may come from."""
        if self.exact:
            draw = self._first + self.place(group)
            return range(draw, draw + 1)
        back = (2 + self._train.max_staleness) * 4 * self._train.prompts_per_step
        return range(max(0, self._drawn - back), self._drawn)

    def versions(self, group: Group) -> range:
        """Return the versions that a group may have been requested under, the newest first.

        Seeds are those of that version. Beside training a sync may come before the engine takes a
        request up, whose tokens are then of a newer one.
        """
        oldest = max(0, group.version - self._train.max_staleness)
        return range(group.version, oldest - 1, -1)

    def of(self, group: Group, version: int, draw: int, sample: int) -> int:
        """Return the seed of a sample of a group, were it of that version and draw."""
        return seed_of(self._seed, group.problem.id, version, draw, sample)

    def all_of(self, group: Group, sample: int) -> Iterator[int]:
        """Yield each seed that a sample of a group may have had, of the newest draws first."""
        for draw in reversed(self.draws(group)):
            for version in self.versions(group):
                yield self.of(group, version, draw, sample)


def seed_of(run_seed: int, problem_id: str, version: int, draw: int, sample: int) -> int:
    """Return the seed of a completion: 63 bits of a BLAKE2b over its parts as JSON."""
    text = json.dumps([run_seed, problem_id, version, draw, sample]).encode()
    return int(hashlib.blake2b(text, digest_size=8, person=b"rlvr-seed").hexdigest(), 16) // 2


def turn_seed(seed: int, turn: int) -> int:
    """Return the seed of a turn of a conversation, from 0: the first is the completion's own."""
    if turn == 0:
        return seed
    text = json.dumps([seed, turn]).encode()
    return int(hashlib.blake2b(text, digest_size=8, person=b"rlvr-turn").hexdigest(), 16) // 2
