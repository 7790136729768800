"""How a run ends, in its folder."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence

from rlvr_core.api import RlvrError
from rlvr_core.record.manifest import Manifest, Outcome
from rlvr_core.run.session import Session


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
            lambda: session.resolved.host.service("core/results")(session.folder),
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
