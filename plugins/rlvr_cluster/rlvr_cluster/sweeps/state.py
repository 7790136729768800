"""Progress of the runs of a sweep, read only from their folders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_cluster.sweeps.metric import value_in
from rlvr_core.api import Estimate
from rlvr_core.toolkit import RunView, list_runs, printable, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable

    from rlvr_cluster.sweeps.trials import Run, Trial

FINISHED, FAILED, RUNNING, INTERRUPTED, WAITING = (
    "finished",
    "failed",
    "running",
    "interrupted",
    "waiting",
)
CONFIG_FILE = "config.yaml"
"""File name of a run's whole config, in its folder of the sweep."""
LOG_FILE = "log.txt"
"""File name of its process's output, in the same folder."""
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class State:
    """Progress of one run.

    Attributes:
        status: ``finished``, ``failed``, ``running``, ``interrupted`` or ``waiting``.
        run: The run folder, if there is one.
        value: The metric, if it has finished.
        error: Why it failed, or has no metric.
    """

    status: str
    run: Path | None = None
    value: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a trial so far.

    Attributes:
        trial: The trial.
        states: Progress of each of its runs, in order.
        estimate: The mean of the metric over its seeds, with the 95% interval.
    """

    trial: Trial
    states: tuple[State, ...]
    estimate: Estimate

    @property
    def status(self) -> str:
        """One word for all runs, with the number of finished ones if not all are."""
        each = [state.status for state in self.states]
        for status in (FAILED, RUNNING, INTERRUPTED):
            if status in each:
                break
        else:
            status = FINISHED if set(each) == {FINISHED} else WAITING
        done = each.count(FINISHED)
        return status if status == FINISHED or len(each) == 1 else f"{status}, {done}/{len(each)}"


def state_of(run: Run, metric: str) -> State:
    """Read the progress of a run."""
    folders = list_runs(run.folder)
    fault = _read_fault(run)
    if not folders:
        return State(WAITING if fault is None else FAILED, error=fault)
    view = RunView(folders[0])
    if view.outcome in ("finished", "stopped"):
        value = value_in(view, metric)
        error = None if value is not None else _no_metric(view, metric)
        return State(FINISHED if error is None else FAILED, view.path, value, error)
    if view.outcome == "failed":
        return State(
            FAILED, view.path, error=_short(view.error or fault or "no reason is recorded")
        )
    if view.outcome == "running":
        return State(RUNNING, view.path)
    return State(INTERRUPTED if fault is None else FAILED, view.path, error=fault)


def is_done(run: Run) -> bool:
    """Return whether a run has taken all its steps, or ended by early stopping."""
    folders = list_runs(run.folder)
    return bool(folders) and RunView(folders[0]).outcome in ("finished", "stopped")


def result_of(trial: Trial, metric: str, estimate: Callable[[Sequence[float]], Estimate]) -> Result:
    """Read the result of a trial so far.

    Args:
        trial: The trial.
        metric: The metric that trials are compared by.
        estimate: The mean of values with its interval.
    """
    states = tuple(state_of(run, metric) for run in trial.runs)
    known = [state.value for state in states if state.value is not None]
    return Result(trial, states, estimate(known))


def note_fault(run: Run, code: int) -> None:
    """Record why the process of a run failed, if its exit code means failure."""
    if code != 0:
        fault = {"code": code, "error": _reason(run, code)}
        write_atomic(_fault_file(run), json.dumps(fault) + "\n")


def forget_fault(run: Run) -> None:
    """Remove the recorded failure of an earlier process."""
    _fault_file(run).unlink(missing_ok=True)


def _fault_file(run: Run) -> Path:
    return run.folder / "failed.json"


def _read_fault(run: Run) -> str | None:
    try:
        return str(json.loads(_fault_file(run).read_text(encoding="utf-8"))["error"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return "the reason is unknown, because failed.json is damaged"


def _reason(run: Run, code: int) -> str:
    """Return the last error in the log of a process, or what its exit code means."""
    if code < 0:
        import signal

        memory = ", perhaps for lack of memory" if -code == signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-code).name}{memory}"
    text = run.log.read_text(encoding="utf-8", errors="replace")
    _, separator, error = text.rpartition("error: ")
    return _short(error) if separator else f"its process ended with exit code {code}"


def _no_metric(view: RunView, metric: str) -> str:
    if ":" in metric:
        have = [f"{e['task']}:{name}" for e in view.evaluations for name in e["metrics"]]
    else:
        have = [name for name in view.metrics if name not in ("step", "version")]
    names = ", ".join(dict.fromkeys(have)) or "none"
    return _short(f"it has finished without the metric '{metric}'; it has: {names}")


def _short(text: str) -> str:
    return printable(" ".join(text.split()), _LONGEST)
