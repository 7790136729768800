"""Executes a sweep, from its file to its table."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rlvr_cluster.sweeps import table
from rlvr_cluster.sweeps.processes import REMEDY, carry_out
from rlvr_cluster.sweeps.spec import Sweep, read_sweep
from rlvr_cluster.sweeps.state import Result, is_done, result_of
from rlvr_cluster.sweeps.trials import Trial, make_trials
from rlvr_core.api import ConfigError
from rlvr_core.cli.main import main
from rlvr_core.script.train import signals_restored
from rlvr_core.toolkit import Host, load_host, lock_folder


@dataclass(frozen=True, slots=True)
class CheckedSweep:
    """A sweep whose trials are checked.

    Attributes:
        sweep: The content of its file.
        host: The plugins.
        trials: The trials, or the requested one.
        only: The number of the single requested trial.
    """

    sweep: Sweep
    host: Host
    trials: list[Trial]
    only: int | None

    @classmethod
    def read(cls, file: Path, only: int | None) -> CheckedSweep:
        """Read a sweep, and check every trial.

        Args:
            file: The file of the sweep.
            only: The number of the one trial to execute; None for all.

        Raises:
            RlvrError: If the file or a trial is wrong; reports all faults at once.
        """
        sweep, host = read_sweep(file), load_host()
        trials = make_trials(sweep, host)
        if only is not None and only >= len(trials):
            raise ConfigError(
                f"there is no trial {only}",
                where="--trial",
                remedy=f"the sweep has 0 to {len(trials) - 1}",
            )
        return cls(sweep, host, trials if only is None else [trials[only]], only)

    def run(self, parallel: int, say: Callable[[str], None]) -> None:
        """Execute the unfinished runs.

        Args:
            parallel: Maximum number of runs at once.
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
            runs = [run for trial in self.trials for run in trial.runs if not is_done(run)]
            carry_out(runs, parallel, say)

    def results(self) -> list[Result]:
        """Read the results of the trials so far."""
        from rlvr_core.stats.estimates import estimate

        return [result_of(trial, self.sweep.spec.metric, estimate) for trial in self.trials]

    def best_first(self) -> list[Result]:
        """Read the results of the trials so far, in the order of the table."""
        return table.best_first(self.results(), self.trials[0].direction)

    def report(self, say: Callable[[str], None]) -> str | None:
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
