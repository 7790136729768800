"""How a run is stopped, and how its end is recorded.

All processes of a run have to leave the loop at the same step, and a supervisor that takes a
machine away gives notice by a signal. So the first SIGINT or SIGTERM requests a stop after the
step, with a checkpoint; before the first step, and with a second signal, the process ends as by
Ctrl-C.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from rlvr_core.api import RlvrError
from rlvr_core.record.manifest import Manifest, Outcome
from rlvr_core.record.results import write_results

if TYPE_CHECKING:
    from rlvr_core.run.session import Session


class Stop:
    """Whether this process is to stop.

    Args:
        patient: Whether a first signal waits for the end of the step.

    Attributes:
        requested: Whether a signal has come.
        stepping: Whether there is a step to finish.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self._patient = patient
        self.requested = False
        self.stepping = False

    def listen(self) -> None:
        """Take over both signals; only the main thread can, and elsewhere nothing is done."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        again, self.requested = self.requested, True
        if again or not (self._patient and self.stepping):
            raise KeyboardInterrupt


@contextlib.contextmanager
def recorded_outcome(session: Session, manifest: Manifest | None) -> Iterator[None]:
    """Write how the run ended into its folder, whatever way that was.

    Args:
        session: The run.
        manifest: Its record; None in a process that does not write it.
    """
    if manifest is None:
        yield
        return
    outcome: Outcome = "failed"
    fault = reason = trace = None
    try:
        yield
        reason = session.stop_reason
        outcome = "finished" if reason is None else "stopped"
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    except BaseException as error:
        fault = f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))
        raise
    finally:
        closing: list[Callable[[], object]] = [
            session.recorder.sync,
            lambda: manifest.finish(
                outcome, steps=session.step, error=fault, traceback=trace, reason=reason
            ),
            lambda: write_results(session.folder),
            lambda: session.finish(outcome, reason),
        ]
        _each(closing, quietly=outcome not in ("finished", "stopped"))


def _each(calls: Sequence[Callable[[], object]], *, quietly: bool) -> None:
    """Make every call, whichever fails.

    Args:
        calls: What to do.
        quietly: Swallow failures, because a first one is on its way to the user and a full disk,
            say, makes these fail too. Otherwise the first failure is raised at the end.
    """
    failed: RlvrError | None = None
    for call in calls:
        try:
            call()
        except RlvrError as error:
            failed = failed or error
    if failed is not None and not quietly:
        raise failed
