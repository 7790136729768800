"""A rollout source that takes turns with training and hands out groups more than once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlvr_core.api import Json
from rlvr_core.api.rollouts import Rollouts, Sampled
from rlvr_core.rollout.replay.buffer import ReplayBuffer
from rlvr_core.rollout.source import SourceParts, TurnSource


class ReplaySource(TurnSource):
    """A ``TurnSource`` for a sampler whose groups are trained on in several steps.

    A step takes the groups that wait first, and generates only what it lacks.
    """

    def __init__(self, parts: SourceParts) -> None:
        super().__init__(parts)
        self._problems = parts.problems
        self._replay = ReplayBuffer()

    def take(self, step: int, version: int, replayed: Sequence[Sampled] = ()) -> Rollouts:
        """See ``RolloutSource.take``."""
        waiting = self._replay.waiting(self._sampler.prompts_per_step)
        return super().take(step, version, [*replayed, *waiting])

    def after_training(
        self,
        rollouts: Rollouts,
        thrown_away: Sequence[bool],
        *,
        updated: bool,
        skipped: bool,
        version: int,
    ) -> dict[str, float]:
        """See ``RolloutSource.after_training``."""
        self._replay.after_training(rollouts, thrown_away, updated=updated, skipped=skipped)
        return {}

    def state_dict(self) -> dict[str, Json]:
        """Return the groups that are to be trained on again."""
        return {"replay": self._replay.state_dict()}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """See ``RolloutSource.load_state_dict``."""
        self._replay.load_state_dict(state["replay"], self._problems)
