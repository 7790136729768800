"""Executes a sweep, from its file to its table."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_core.api import ConfigError
from rlvr_core.api.services import load_host, lock_folder, main, signals_restored
from rlvr_core.builtin.sweeps import slurm, table
from rlvr_core.builtin.sweeps.processes import REMEDY, carry_out
from rlvr_core.builtin.sweeps.spec import Sweep, read_sweep
from rlvr_core.builtin.sweeps.state import FINISHED, Result, result_of
from rlvr_core.builtin.sweeps.trials import (
    Trial,
    known_values,
    make_trial,
    make_trials,
    probes,
)
from rlvr_core.builtin.sweeps.work import Chosen, Listed

if TYPE_CHECKING:
    from rlvr_core.api.services import Host
    from rlvr_core.builtin.sweeps.axes import Values
    from rlvr_core.builtin.sweeps.processes import Place

Say = Callable[[str], None]


@dataclass(slots=True)
class Carried:
    """A sweep whose trials are checked.

    Attributes:
        sweep: The content of its file.
        host: The plugins.
        trials: Its trials, or the requested one; with ``tpe``, those chosen so far.
        direction: Whether the metric should ``maximize`` or ``minimize``.
        only: The number of the single requested trial.
        refused: Messages about trials that could not be built.
    """

    sweep: Sweep
    host: Host
    trials: list[Trial]
    direction: str
    only: int | None
    refused: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path, only: int | None) -> Carried:
        """Read a sweep, and check every trial.

        Args:
            file: Its file.
            only: The number of the one trial to carry out; None for all.

        Raises:
            RlvrError: If the file or a trial is wrong; reports all faults at once.
        """
        sweep, host = read_sweep(file), load_host()
        if sweep.spec.method == "tpe":
            direction = _check_tpe(sweep, host, only)
            trials = make_trials(sweep, known_values(sweep), host)
            return cls(sweep, host, trials, direction, only)
        trials = make_trials(sweep, known_values(sweep), host)
        if only is not None and only >= len(trials):
            raise ConfigError(
                f"there is no trial {only}",
                where="--trial",
                remedy=f"the sweep has 0 to {len(trials) - 1}",
            )
        chosen = trials if only is None else [trials[only]]
        return cls(sweep, host, chosen, trials[0].direction, only)

    @property
    def unknown(self) -> int:
        """Number of trials whose values are not chosen yet."""
        tpe = self.sweep.spec.method == "tpe"
        return (self.sweep.spec.trials or 0) - len(self.trials) if tpe else 0

    def run(self, place: Place, say: Say) -> None:
        """Execute the unfinished runs.

        Args:
            place: Where to execute them.
            say: Called with progress messages.

        Raises:
            RunError: If another process works in the sweep's folder.
            KeyboardInterrupt: On SIGINT or SIGTERM, after all processes have ended.
        """
        with signals_restored():
            for name in (signal.SIGINT, signal.SIGTERM):
                signal.signal(name, signal.default_int_handler)
            if self.only is None:  # single trials have locks of their own
                self.sweep.folder.mkdir(parents=True, exist_ok=True)
                lock_folder(self.sweep.folder, REMEDY)
            if self.sweep.spec.method != "tpe":
                return carry_out(Listed(self.trials), place, say)
            assert self.sweep.spec.trials is not None
            work = Chosen(self.trials, self.sweep.spec.trials, self._choose, self._make)
            carry_out(work, place, say)
            for number, values, error in work.refused:
                self.refused.append(f"trial {number} ({values}) cannot run: {error}")
        return None

    def results(self) -> list[Result]:
        """Read the results of the trials so far."""
        estimate = self.host.service("core/estimate")
        return [result_of(trial, self.sweep.spec.metric, estimate) for trial in self.trials]

    def best_first(self) -> list[Result]:
        """Read the results of the trials so far, in the order of the table."""
        return table.best_first(self.results(), self.direction)

    def report(self, say: Say) -> str | None:
        """Write the report of all finished runs; return its path, or None.

        The best trial's runs come first: the others are compared with the first one.
        """
        done = [
            str(state.run)
            for result in self.best_first()
            for state in result.states
            if state.run is not None and state.value is not None
        ]
        place = self.sweep.folder / "report.html"
        if not done:
            return None
        with redirect_stdout(StringIO()):
            code = main(["report", *done, "--out", str(place)])
        if code != 0:
            say("the report could not be written; the table is complete without it")
            return None
        return str(place)

    def scripts(self, parallel: int) -> tuple[str, str]:
        """Return the scripts of an array of the unfinished trials, and of its table."""
        return slurm.scripts(self.sweep, self._unfinished(), parallel)

    def submit(self, parallel: int, options: Sequence[str]) -> slurm.Queued:
        """Submit the unfinished trials to Slurm; see ``slurm.submit``."""
        return slurm.submit(self.sweep, self._unfinished(), parallel, options)

    def queue(self) -> str | None:
        """Return the states of the sweep's jobs in Slurm's queue; None if none is queued.

        Raises:
            RlvrError: If the queue cannot be queried.
        """
        found = slurm.queued(self.sweep)
        return None if found is None else found.status()

    def _unfinished(self) -> list[int]:
        if self.sweep.spec.method == "tpe":
            raise ConfigError(_ONE_PROCESS, where="--backend slurm", remedy=_OTHER)
        found = [r.trial.number for r in self.results() if r.status != FINISHED]
        if not found:
            raise ConfigError(
                "all trials have finished",
                where=str(self.sweep.folder),
                remedy="see their table: --collect",
            )
        return found

    def _choose(self, number: int) -> Values:
        from rlvr_core.builtin.sweeps.tpe import choose

        known = [
            (result.trial.values, result.estimate.value)
            for result in self.results()
            if result.estimate.value is not None
        ]
        spec = self.sweep.spec
        return choose(
            self.sweep.axes, known, direction=self.direction, seed=spec.seed, number=number
        )

    def _make(self, number: int, values: Values) -> Trial:
        return make_trial(self.sweep, number, values, self.host)


_ONE_PROCESS = "method 'tpe' chooses each trial from the results of all before it"
_OTHER = "run it in one process, with --parallel or --backend ray; or choose method: random"


def _check_tpe(sweep: Sweep, host: Host, only: int | None) -> str:
    """Check the values that TPE may choose, before it does; return the direction."""
    from rlvr_core.builtin.sweeps.tpe import optuna

    if only is not None:
        raise ConfigError(_ONE_PROCESS, where="--trial", remedy=_OTHER)
    optuna()
    return make_trials(sweep, probes(sweep), host, of_folder=False)[0].direction
