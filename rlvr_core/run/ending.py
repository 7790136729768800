"""Stopping a run on a signal, and recording how it ended.

All processes of a run must leave the loop at the same step, and a scheduler that reclaims a machine
announces it by a signal. So the first SIGINT or SIGTERM requests a stop after the current step,
with a checkpoint. Before the first step, and on a second signal, the process ends as on Ctrl-C.
Schedulers signal every process of a job, and the launcher forwards what it gets: several signals
within ``Stop.TOGETHER`` seconds count as one.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
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
    """Stop request of this process, set by signals.

    Args:
        patient: Whether a first signal waits for the end of the step.

    Attributes:
        TOGETHER: Seconds in which signals are one request.
        DEADLINE: Seconds that an interrupted process has to end.
        PATIENCE: Of these, how many are for a checkpoint that is being written.
        requested: Whether a signal has been received.
        stepping: Whether a step is in progress.
    """

    TOGETHER = 2.0
    DEADLINE = 25
    PATIENCE = 15.0

    def __init__(self, *, patient: bool = False) -> None:
        self._patient, self._latest = patient, 0.0
        self.requested = self.stepping = False

    def listen(self) -> None:
        """Install handlers for both signals; does nothing outside of the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        now, again = time.monotonic(), self.requested
        if again and now - self._latest < self.TOGETHER:
            return
        self.requested, self._latest = True, now
        if again or not (self._patient and self.stepping):
            signal.alarm(self.DEADLINE)  # imports may swallow the exception, and an ending hang
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def heeded(self) -> Iterator[None]:
        """Take an error for the interrupt before it: imports may make another exception of it."""
        try:
            yield
        except Exception as error:
            if self.requested and not (self._patient and self.stepping):
                raise KeyboardInterrupt from error
            raise


PATIENCE = 600.0
"""Seconds for the checkpoint in work where a run fails: it must not keep a process for ever."""


@contextlib.contextmanager
def recorded_outcome(session: Session, manifest: Manifest | None) -> Iterator[None]:
    """Record in its folder how the run ended, whatever ended it.

    Args:
        session: The run.
        manifest: The run's manifest; None in a process that does not write it.
    """
    from rlvr_core.run.checkpointing import settle_alone  # imports torch

    if manifest is None:
        with contextlib.ExitStack() as ending:  # process 0 waits for this one's shard
            ending.callback(_each, [lambda: settle_alone(session, PATIENCE)], quietly=True)
            yield
        return
    outcome: Outcome = "failed"
    fault = reason = trace = None
    patience = PATIENCE
    try:
        yield
        reason = session.stop_reason
        outcome = "finished" if reason is None else "stopped"
    except KeyboardInterrupt:
        outcome, patience = "interrupted", Stop.PATIENCE
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
            lambda: settle_alone(session, patience),
            lambda: session.finish(outcome, reason),
        ]
        _each(closing, quietly=outcome not in ("finished", "stopped"))


def _each(calls: Sequence[Callable[[], object]], *, quietly: bool) -> None:
    """Make every call, even if some of them fail.

    Args:
        calls: The calls to make.
        quietly: Swallow failures, because an earlier one is already being raised and probably
            causes these too (a full disk, say). Otherwise the first failure is raised at the end.
    """
    failed: RlvrError | None = None
    for call in calls:
        try:
            call()
        except RlvrError as error:
            failed = failed or error
    if failed is not None and not quietly:
        raise failed
