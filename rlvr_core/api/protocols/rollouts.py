"""Where the judged groups of a run's steps come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from rlvr_core.api.types import Ages, Json, Rollouts


class RolloutSource(Protocol):
    """Gives each step its judged groups: sampled when the step begins, or ahead of it.

    In a run of several processes each has one. All call the same methods in the same order, in
    their main threads, and get the same groups.
    """

    def running(self, step: int, version: int) -> AbstractContextManager[None]:
        """Generate while the block runs, if generation goes on beside training.

        Args:
            step: The first step of the block.
            version: The policy version the engine holds.
        """

    def take(self, step: int, version: int) -> Rollouts:
        """Return the groups of a step when all of them are judged.

        Raises:
            RunError: If that takes too long, generation failed, or too many verdicts were errors.
        """

    def before_training(self) -> None:
        """Make room for the trainer: an engine that shares its device gives memory back."""

    def after_training(
        self,
        rollouts: Rollouts,
        thrown_away: Sequence[bool],
        *,
        updated: bool,
        skipped: bool,
        version: int,
    ) -> dict[str, float]:
        """Note which groups were trained on, so that those to be read again come back.

        Args:
            rollouts: What ``take`` returned.
            thrown_away: For each group of ``rollouts.trained``, whether all its updates were
                skipped.
            updated: Whether any update of the step was applied.
            skipped: Whether the step had updates and none was applied.
            version: The policy version after the step.

        Returns:
            Numbers for the step's line.
        """

    def sync(self, step: int, version: int, load: Callable[[], None] | None) -> None:
        """Go on to the next step; new requests are held back until ``resume``.

        Args:
            step: The next step.
            version: The policy version from now on.
            load: Loads the weights into the engine; None when they did not change.
        """

    def pause(self) -> None:
        """Return once no completion is being generated or judged, and begin none."""

    def resume(self) -> None:
        """Let generation go on; called at the end of each step."""

    def drawn(self) -> int:
        """Return the number of completions judged since the last call, for the ledger."""

    def metrics(self, ages: Ages) -> dict[str, float]:
        """Return numbers for the step's line.

        Args:
            ages: The step's completions by fate and age.
        """

    def state_dict(self) -> dict[str, Json]:
        """Return what ``load_state_dict`` needs; the source is paused."""

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Go on from what ``state_dict`` returned; before ``running``."""
