"""Chooses the next run of a sweep: the next of a list, or one with values by TPE."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rlvr_core.api import RlvrError
from rlvr_core.builtin.sweeps.state import is_done

if TYPE_CHECKING:
    from rlvr_core.builtin.sweeps.axes import Values
    from rlvr_core.builtin.sweeps.trials import Run, Trial


class Listed:
    """The unfinished runs of a list of trials."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._waiting: deque[Run] = deque()
        for trial in trials:
            self.add(trial)

    def add(self, trial: Trial) -> None:
        """Append the runs of one more trial."""
        todo = [run for run in trial.runs if not is_done(run)]
        if todo:
            trial.prepare()
        self._waiting.extend(todo)

    def next(self) -> Run | None:
        """Return the next run; None when there are no more."""
        return self._waiting.popleft() if self._waiting else None

    def ended(self, run: Run) -> None:
        """Do nothing: the order does not depend on results."""


class Chosen(Listed):
    """Trials whose values are chosen when a process is free, from the results so far.

    Args:
        trials: Trials chosen before; each newly chosen trial is added to this list.
        count: Total number of trials.
        choose: Returns the values of the next trial.
        make: Builds the trial from its number and values.
    """

    def __init__(
        self,
        trials: list[Trial],
        count: int,
        choose: Callable[[int], Values],
        make: Callable[[int, Values], Trial],
    ) -> None:
        super().__init__(trials)
        self._trials = trials
        self._choose, self._make = choose, make
        self.refused: list[tuple[int, Values, RlvrError]] = []
        begun = {trial.number for trial in trials}
        self._numbers = deque(number for number in range(count) if number not in begun)

    def next(self) -> Run | None:
        """Return the next run; choose another trial if all runs of the current ones have begun."""
        run = super().next()
        while run is None and self._numbers:
            number = self._numbers.popleft()
            values = self._choose(number)
            try:
                trial = self._make(number, values)
            except RlvrError as error:  # values that fit one by one may not fit together
                self.refused.append((number, values, error))
                continue
            self._trials.append(trial)
            self.add(trial)
            run = super().next()
        return run
