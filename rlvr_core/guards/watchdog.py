"""The watchdog: a thread beside the run that ends it when it waits for something too long.

An engine, a pool, a judge or a kernel that never answers leaves a run that costs money and says
nothing, and so do files that never come or a verifier that never gets ready, before the first step.
What the run waits for is what it said last, in the thread that trains. Time is counted per kind of
wait: what took long before may take longer.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from rlvr_core.api import ComponentConfig, RunError
from rlvr_core.api.guards import BaseGuard, how_to_switch_off

if TYPE_CHECKING:
    from rlvr_core.api import GuardContext, RunFinished, RunStarted

REPORT = "watchdog.txt"
"""Name of the report in the run's folder."""

FLOOR = 7200.0
"""Seconds that a wait may take in any case, unless ``max_wait`` says otherwise."""

FACTOR = 10.0
"""A wait may take this many times what the longest of its kind took."""

GRACE = 30.0
"""Seconds that the run has to end by itself, before its process is ended."""


class HungError(RunError):
    """A run that waited too long for something. Exit code 7."""

    exit_code = 7


@dataclass(frozen=True, slots=True)
class Wait:
    """What the run waits for.

    Attributes:
        label: What it said.
        since: When it began, by the monotonic clock.
        clock: When it began, by the clock on the wall.
    """

    label: str
    since: float
    clock: float

    @property
    def kind(self) -> str:
        """The label without its numbers."""
        return re.sub(r"\d+", "#", self.label)


class Watchdog(BaseGuard):
    """Watches the waits of the thread that enters it, which trains: from there to the exit.

    In a run of several processes the main one is watched: it waits for the others.

    Args:
        config: Its options.
        end_process: Ends this process with an exit code, where the run cannot.
    """

    name = "core/watchdog"

    class Config(ComponentConfig):
        """Options of ``core/watchdog``."""

        max_wait: Annotated[float, Field(gt=0)] | None = None
        """Seconds that one wait may take, or ten times the longest of its kind, if that is more;
        null for two hours, or twice ``run.timeout`` if that is more."""

    def __init__(self, config: Config, end_process: Callable[[int], object] = os._exit) -> None:
        super().__init__(config)
        self._floor = FLOOR if config.max_wait is None else config.max_wait
        self._by_default = config.max_wait is None
        self._end_process = end_process
        self._longest: dict[str, float] = {}
        self._wait: Wait | None = None
        self._thread: int | None = None
        self._folder: Path | None = None
        self._error: HungError | None = None
        self._closed = threading.Event()
        self._before: Any = None

    # -- what the run does -----------------------------------------------------------------------

    def __enter__(self) -> Watchdog:
        """Begin to watch the thread that calls this."""
        if os.environ.get("RANK", "0") != "0":
            return self
        self._thread = threading.get_ident()
        if threading.current_thread() is threading.main_thread():
            # wakes the thread from a lock, a sleep or a read; SIGINT would pass for a person's
            self._before = signal.signal(signal.SIGUSR2, self._raise)
        threading.Thread(target=self._watch, name="rlvr-watchdog", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: object,
    ) -> None:
        """Stop watching."""
        self._closed.set()
        if self._before is not None:
            signal.signal(signal.SIGUSR2, self._before)
            self._before = None

    def bind(self, context: GuardContext) -> None:
        """Wait at least as long as the run itself would for generation or verdicts."""
        super().bind(context)
        if self._by_default:
            self._floor = max(FLOOR, 2 * context.config.run.timeout)

    def run_started(self, event: RunStarted) -> None:
        """There is a folder for the report."""
        self._folder = event.run_dir
        self.phase("the first step")

    def phase(self, label: str) -> None:
        """A wait has ended and another begun."""
        if threading.get_ident() != self._thread:
            return
        now, ended = time.monotonic(), self._wait
        if ended is not None:
            took = now - ended.since
            self._longest[ended.kind] = max(took, self._longest.get(ended.kind, 0.0))
        self._wait = Wait(label, now, time.time())

    def run_finished(self, event: RunFinished) -> None:
        """The last line is written; engines and pools close after it."""
        self.phase("the end of the run: engines and pools that close")

    # -- beside it -------------------------------------------------------------------------------

    def limit(self, kind: str) -> float:
        """Return how many seconds a wait of this kind may take."""
        return max(self._floor, FACTOR * self._longest.get(kind, 0.0))

    def _watch(self) -> None:
        pause = min(5.0, self._floor / 10)
        while not self._closed.wait(pause):
            wait = self._wait
            if wait is None:
                continue
            took, limit = time.monotonic() - wait.since, self.limit(wait.kind)
            if took > limit and wait is self._wait:
                self._end(wait, took, limit)
                return

    def _end(self, wait: Wait, took: float, limit: float) -> None:
        """Say what is awaited, wake the thread, and end the process if that does not help."""
        path = None if self._folder is None else self._folder / REPORT
        where = "above" if path is None else f"above and in {path}"
        resumed = "start the run again, or go" if path is None else "go"
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wait.clock))
        what = f"guard watchdog: the run has waited {took:.0f} s for: {wait.label}"
        error = HungError(
            f"{what} (since {since}, limit {limit:.0f} s)",
            where=stacks().get(self._thread or 0, ["?"])[-1].strip().splitlines()[0],
            remedy=(
                f"the stacks of all threads are {where}: what the training thread stands in did "
                "not come back",
                f"{resumed} on with rlvr run --resume; the checkpoints are intact",
                "its option max_wait sets the seconds",
                how_to_switch_off("core/watchdog"),
            ),
        )
        self._report(f"{what}, since {since}\n", path)
        self._error = error
        if self._before is not None:
            signal.pthread_kill(self._thread or 0, signal.SIGUSR2)
            if self._closed.wait(GRACE):
                return
        _say(f"error: {error}\n")
        self._end_process(HungError.exit_code)

    def _report(self, head: str, path: Path | None) -> None:
        text = head
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, lines in stacks().items():
            mark = ", which trains" if ident == self._thread else ""
            text += f"\nthread {names.get(ident, ident)}{mark}:\n{''.join(lines)}"
        _say(text)
        if path is None:
            return
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            _say(f"{path} could not be written: {error}\n")

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def stacks() -> dict[int, list[str]]:
    """Return the stack of each thread but this one, the innermost call last."""
    watching = threading.get_ident()
    return {
        ident: traceback.format_stack(frame)
        for ident, frame in sys._current_frames().items()
        if ident != watching
    }
