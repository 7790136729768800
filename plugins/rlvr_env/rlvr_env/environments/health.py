"""Decides whether an environment fails occasionally, or is broken and the run must stop."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rlvr_core.api import Generation, RunError

WINDOW, FEWEST, BROKEN = 200, 20, 0.9
"""An environment is broken if more than 90 % of its last 200 draws failed in all conversations,
from 20 draws on. Where the model reads errors, one whose calls fail as often ends its
conversations."""


class Health:
    """Counts failures of the environments of a run."""

    def __init__(self) -> None:
        self._calls: dict[str, deque[bool]] = {}
        self._draws: dict[str, deque[bool]] = {}

    def called(self, environment: str, *, failed: bool) -> bool:
        """Count a call of ``step``; return whether nearly all of the recent ones failed."""
        return _add(self._calls, environment, failed)

    def played(self, environment: str, finished: Sequence[Generation]) -> RunError | None:
        """Count a draw; return the error that ends the run if nearly all of the last ones failed.

        All conversations of a draw share one world, so a world that fails is one failure.
        """
        transcripts = [generation.transcript for generation in finished]
        failed = all(transcript is not None and transcript.failed for transcript in transcripts)
        if not _add(self._draws, environment, failed) or not failed:
            return None
        draws = self._draws[environment]
        return RunError(
            f"environment '{environment}' is broken: all conversations failed in {sum(draws)} of "
            f"its last {len(draws)} draws",
            where=next(
                (transcript.detail for transcript in transcripts if transcript is not None), ""
            ),
            remedy="an error of a tool is told to the model with EnvironmentTraits(on_error="
            '"observe"), or caught by the environment',
        )


def _add(counts: dict[str, deque[bool]], name: str, failed: bool) -> bool:
    window = counts.setdefault(name, deque(maxlen=WINDOW))
    window.append(failed)
    return len(window) >= FEWEST and sum(window) > BROKEN * len(window)
