"""How many verdicts of the guard ``canaries`` a step can afford."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlvr_core.verify.judge import Judge

SHARE = 0.01
"""Share of a step's time that verdicts may take."""
OWN = 3e-4
"""Seconds of this process per verdict: packing, sending, comparing."""
FIRST_STEPS = 16
"""First steps of a process with a larger budget, as most faults exist from the start."""
ALLOWED = 0.02
"""Minimum seconds of verdicts in each of these steps, whatever share that is."""
MOST = 64
"""Maximum verdicts of a step."""
REFRESH = 32
"""Steps between updates of the time per verdict, for which the pool has to sort."""


class Budget:
    """Keeps the time of verdicts to a share of the time of steps.

    Args:
        judge: The judge whose pool measures verdicts.
        workers: Processes of the pool.
    """

    def __init__(self, judge: Judge, workers: int) -> None:
        self._judge, self._workers = judge, workers
        self._steps = 0
        self._seconds = 0.0
        """Seconds available for verdicts: time of steps times ``SHARE``, minus time spent."""
        self._cost = self._measured()

    def _measured(self) -> float:
        """Return the seconds that one completion takes with all its verifiers."""
        stats = self._judge.pool.stats().values()
        return sum(one.seconds / one.calls for one in stats if one.calls) / self._workers + OWN

    def step(self, seconds: float) -> None:
        """Record the duration of a finished step."""
        self._steps += 1
        self._seconds = min(self._seconds + SHARE * seconds, MOST * self._cost)
        if self._steps % REFRESH == 0:
            self._cost = self._measured()

    def verdicts(self) -> int:
        """Return how many verdicts are affordable now."""
        seconds = max(self._seconds, ALLOWED if self._steps < FIRST_STEPS else 0.0)
        return min(int(seconds / self._cost), MOST)

    def spend(self, verdicts: int, seconds: float) -> None:
        """Record a number of submitted verdicts, and this process's time to submit them."""
        self._seconds -= max(verdicts * self._cost, seconds)
