"""Requests and pending answers of an engine's process, across restarts of that process.

A process that dies is replaced, and exactly the unanswered requests are sent to the new one: an
answer completes its request, and all answers of a process are received before its end is noticed.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from rlvr_core.api import Generation, GenerationRequest, RlvrError, RunError
from rlvr_core.builtin.asynchronous.child_process import ChildProcess, Message

START_LIMIT = 900.0
"""Seconds the process may take to load the model."""
FIRST_PAUSE = 1.0
"""Seconds before the first restart; doubled at each further one."""
_LONGEST_PAUSE = 30.0


@dataclass(slots=True)
class Pending:
    """A message that has not been answered.

    Attributes:
        message: The message; a completion request is alone in its list.
        future: Future of the answer.
        bound: The process whose death fails it; None if it is sent again to the next process.
        sent: Whether it was sent to a process.
    """

    message: Message
    future: Future[Any]
    bound: ChildProcess | None = None
    sent: bool = False

    @property
    def n_completions(self) -> int:
        """Number of completions requested."""
        return len(self.message[1][0][1].seeds) if self.is_request else 0

    @property
    def is_request(self) -> bool:
        """Whether it requests completions."""
        return bool(self.message[0] == "submit")


class RequestChannel:
    """The request channel to an engine's process. Methods may be called from any thread.

    Args:
        restarts: How often the process is restarted if it dies.
        restore: Called with each new process, to send it the weights.
    """

    def __init__(self, restarts: int, restore: Callable[[ChildProcess], None]) -> None:
        self._most, self._restore = restarts, restore
        self._spawn_args, self._fds, self._gpus = b"", list[int](), ""
        self.working: ChildProcess | None = None
        """The running process; None before the start and during a restart."""
        self.starting: ChildProcess | None = None
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._queue: list[int] = []
        self._pending: dict[int, Pending] = {}
        self._broken: RlvrError | None = None
        self._closing = threading.Event()
        self.restarts = self.resent = 0
        self._events: list[str] = []

    def open(self, spawn_args: bytes, fds: Sequence[int], gpus: str) -> None:
        """Start the first process; see ``ChildProcess`` for the arguments.

        Raises:
            RlvrError: If it does not start.
        """
        self._spawn_args, self._fds, self._gpus = spawn_args, list(fds), gpus
        self._launch()

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request for the next ``begin``."""
        with self._lock:
            self._check()
            number = next(self._numbers)
            pending = self._pending[number] = Pending(("submit", [(number, request)]), Future())
            self._queue.append(number)
        return pending.future

    def begin(self) -> None:
        """Send all queued requests at once."""
        with self._lock:
            queued, self._queue = self._queue, []
            if self.working is not None:  # otherwise it is sent once a process runs
                self._send(self.working, queued)

    def unfinished(self) -> list[Future[Any]]:
        """Return the futures of all unanswered requests.

        Raises:
            RlvrError: If no process is left to answer them.
        """
        with self._lock:
            self._check()
            return [pending.future for pending in self._requests().values()]

    def drop(self) -> bool:
        """Cancel requests that no process works on; return whether a process is running."""
        with self._lock:
            down = self.working is None
            dropped = list(self._requests()) if down else self._queue
            futures = [self._pending.pop(number).future for number in dropped]
            self._queue = []
        for future in futures:
            future.cancel()
        return not down

    def call(self, name: str, *arguments: Any, timeout: float) -> Any:
        """Call the process and wait for the answer, across a restart if necessary."""
        with self._lock:
            self._check()
            number = next(self._numbers)
            pending = self._pending[number] = Pending((name, number, *arguments), Future())
            if self.working is not None:
                pending.sent = True
                self.working.send(*pending.message)
        return _answer(pending.future, name, timeout)

    def ask(self, process: ChildProcess, name: str, *arguments: Any, timeout: float) -> Any:
        """Ask this very process and wait for the answer; raises if the process dies."""
        with self._lock:
            number = next(self._numbers)
            rest = [[(number, *arguments)]] if name == "submit" else [number, *arguments]
            if process.gone is not None:
                raise process.gone
            pending = self._pending[number] = Pending((name, *rest), Future(), process, sent=True)
            process.send(*pending.message)
        return _answer(pending.future, name, timeout)

    def take_events(self) -> list[str]:
        """Return messages about what happened to the process since the last call."""
        with self._lock:
            events, self._events = self._events, []
        return events

    def close(self) -> None:
        """End the process; safe to call twice."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            working, starting = self.working, self.starting
            self.working = None
        if starting is not None:
            starting.kill()  # it cannot process a message in this state
        for process in (working, starting):
            if process is not None:
                process.close()
        self._fail(RunError("the engine was closed before the request was finished"))

    # -- starting and restarting the process -----------------------------------------------------

    def _launch(self) -> None:
        """Start a process, send it the weights, and then the unanswered requests.

        Raises:
            RlvrError: If it does not start.
        """
        with self._lock:
            if self._closing.is_set():
                raise RunError("the engine was closed")
            process = ChildProcess(self._spawn_args, self._fds, self._gpus, self._hear, self._lost)
            self.starting = process
        try:
            process.await_start(START_LIMIT)
            self._restore(process)
            with self._lock:
                if process.gone is not None:
                    raise process.gone
                self._send_again(process)
                self.working = process
        except BaseException:
            process.kill()
            process.close()
            raise
        finally:
            self.starting = None

    def _send_again(self, process: ChildProcess) -> None:
        """Send all unanswered messages again in order, with requests batched where possible."""
        requests: list[int] = []
        for number, pending in sorted(self._pending.items()):
            if number in self._queue:
                continue
            self.resent += pending.n_completions if pending.sent else 0
            if pending.is_request:
                requests.append(number)
                continue
            self._send(process, requests)
            requests = []
            pending.sent = True
            process.send(*pending.message)
        self._send(process, requests)

    def _lost(self, process: ChildProcess, reason: RlvrError, died: bool) -> None:
        """Handle a lost process: start another, unless one is starting or too many were lost."""
        with self._lock:
            process.gone = reason
            mine = [number for number, pending in self._pending.items() if pending.bound is process]
            futures = [self._pending.pop(number).future for number in mine]
            worked = process is self.working
            if worked:
                self.working = None
        for future in futures:
            future.set_exception(reason)
        if not worked:
            return  # the thread that starts it is notified
        if not died:
            self._fail(reason)
        process.close()
        if died:
            self._bring_back(reason)

    def _bring_back(self, reason: RlvrError) -> None:
        begun = time.monotonic()
        while self.restarts < self._most:
            self.restarts += 1
            self.tell(f"{_first(reason)}; it is started again ({self.restarts} of {self._most})")
            pause = min(FIRST_PAUSE * 2 ** (self.restarts - 1), _LONGEST_PAUSE)
            if self._closing.wait(pause):
                return
            try:
                self._launch()
            except RlvrError as error:
                reason = error
            except Exception as error:
                reason = RunError(f"the engine's process cannot be started: {error}")
            else:
                self.tell(f"the engine's process is back after {time.monotonic() - begun:.0f} s")
                return
            if self._closing.is_set():
                return  # it was ended while starting
        n = self.restarts
        tried = f"; it was started again {'once' if n == 1 else f'{n} times'}" if n else ""
        self._fail(
            RunError(
                f"{_first(reason)}{tried}",
                where=reason.complaints[0].where,
                remedy=(
                    "rlvr run --resume goes on from the last checkpoint",
                    f"train.engine_restarts ({self._most}) says how often it is started again",
                ),
            )
        )

    def tell(self, event: str) -> None:
        """Add a message for the display; see ``take_events``."""
        with self._lock:
            self._events.append(event)

    # -- messages --------------------------------------------------------------------------------

    def _hear(self, message: Message) -> None:
        """Process an answer."""
        kind, number, *rest = message
        with self._lock:
            pending = self._pending.pop(number, None)
        if pending is None:
            return  # the engine was closed or given up meanwhile
        if kind == "cancelled":
            pending.future.cancel()
        elif kind == "failed":
            pending.future.set_exception(rest[0])
        else:
            pending.future.set_result(rest[0])

    def _requests(self) -> dict[int, Pending]:
        """Return the unfinished completion requests, by number."""
        return {
            number: pending
            for number, pending in self._pending.items()
            if pending.is_request and pending.bound is None
        }

    def _send(self, process: ChildProcess, numbers: Sequence[int]) -> None:
        """Send requests in one message."""
        if not numbers:
            return
        pending = [self._pending[number] for number in numbers]
        for one in pending:
            one.sent = True
        process.send("submit", [one.message[1][0] for one in pending])

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _fail(self, error: RlvrError) -> None:
        """Fail every open future with this error, and refuse further work."""
        with self._lock:
            self._broken = self._broken or error
            futures = [pending.future for pending in self._pending.values()]
            self._pending, self._queue = {}, []
        for future in futures:
            future.set_exception(error)


def _answer(future: Future[Any], name: str, timeout: float) -> Any:
    try:
        return future.result(timeout)
    except TimeoutError as error:
        raise RunError(
            f"the engine's process did not answer '{name}' within {timeout:g} s",
            remedy="raise run.timeout if it was at work on long completions",
        ) from error


def _first(error: RlvrError) -> str:
    return error.complaints[0].what
