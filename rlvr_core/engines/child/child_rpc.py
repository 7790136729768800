"""Requests to an engine's process, and their answers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from rlvr_core.api import Generation, GenerationRequest, RlvrError, RunError
from rlvr_core.engines.child.child_process import ChildProcess, Message

START_LIMIT = 900.0
"""Seconds the process may take to load the model."""


class RequestChannel:
    """The request channel to an engine's process. Methods may be called from any thread."""

    def __init__(self) -> None:
        self.process: ChildProcess | None = None
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._queue: list[tuple[int, GenerationRequest]] = []
        self._requests: dict[int, Future[Any]] = {}
        self._calls: dict[int, Future[Any]] = {}
        self._broken: RlvrError | None = None

    def open(self, spawn_args: bytes, gpus: str) -> None:
        """Start the process; see ``ChildProcess`` for the arguments.

        Raises:
            RlvrError: If it does not start.
        """
        self.process = ChildProcess(spawn_args, gpus, self._hear, self._fail)
        try:
            self.process.await_start(START_LIMIT)
        except BaseException:
            self.process.kill()
            self.process.close()
            raise

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request for the next ``begin``."""
        future: Future[tuple[Generation, ...]] = Future()
        with self._lock:
            self._check()
            number = next(self._numbers)
            self._requests[number] = future
            self._queue.append((number, request))
        return future

    def begin(self) -> None:
        """Send all queued requests at once."""
        with self._lock:
            queued, self._queue = self._queue, []
            if queued and self.process is not None:
                self.process.send("submit", queued)

    def unfinished(self) -> list[Future[Any]]:
        """Return the futures of all unanswered requests.

        Raises:
            RlvrError: If the process has ended.
        """
        with self._lock:
            self._check()
            return list(self._requests.values())

    def drop(self) -> None:
        """Cancel requests that were not sent."""
        with self._lock:
            queued, self._queue = self._queue, []
            futures = [self._requests.pop(number) for number, _ in queued]
        for future in futures:
            future.cancel()

    def call(self, name: str, *arguments: Any, timeout: float) -> Any:
        """Call the process and wait for the answer."""
        future: Future[Any] = Future()
        with self._lock:
            self._check()
            assert self.process is not None, "the engine is not started"
            number = next(self._numbers)
            self._calls[number] = future
            self.process.send(name, number, *arguments)
        try:
            return future.result(timeout)
        except TimeoutError as error:
            raise RunError(
                f"the engine's process did not answer '{name}' within {timeout:g} s",
                remedy="raise run.timeout if it was at work on long completions",
            ) from error

    def close(self) -> None:
        """End the process; safe to call twice."""
        if self.process is not None:
            self.process.close()
        self._fail(RunError("the engine was closed before the request was finished"))

    def _hear(self, message: Message) -> None:
        """Process an answer."""
        kind, number, *rest = message
        with self._lock:
            future = self._requests.pop(number, None) or self._calls.pop(number, None)
        if future is None:
            return  # the engine was closed meanwhile
        if kind == "cancelled":
            future.cancel()
        elif kind == "failed":
            future.set_exception(rest[0])
        else:
            future.set_result(rest[0])

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _fail(self, error: RlvrError) -> None:
        """Fail every open future with this error, and refuse further work."""
        with self._lock:
            self._broken = self._broken or error
            futures: Sequence[Future[Any]] = [*self._requests.values(), *self._calls.values()]
            self._requests, self._calls, self._queue = {}, {}, []
        for future in futures:
            future.set_exception(error)
