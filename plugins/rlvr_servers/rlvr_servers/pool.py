"""Distributes requests over vLLM servers: if one dies, no completion is lost or counted twice.

Everything runs on one event loop, in its own thread; only methods marked so may be called from
other threads. A request is split into its completions. Each waits in the queue or is in flight at
one server, never both, until it is answered. Unanswered completions of a lost server return to the
head of the queue, with the same seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rlvr_core.api import Generation, GenerationRequest, RlvrError, RunError, one_line
from rlvr_core.engines.sampling import StopStrings
from rlvr_core.engines.vllm.process import VERBOSE
from rlvr_core.engines.vllm.requests import MAX_ATTEMPTS, Pending
from rlvr_servers.client import (
    FaultError,
    GoneError,
    OtherWeightsError,
    ServerClient,
    generate_body,
    read_generation,
)
from rlvr_servers.process import ServerProcess


class LoopThread:
    """An event loop in its own thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="vllm-servers", daemon=True
        )
        self._thread.start()

    def run(self, work: Any, timeout: float | None = None) -> Any:
        """Return the result of a coroutine on the loop; each of its waits has its own deadline."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    def close(self, last: Sequence[Coroutine[Any, Any, None]] = ()) -> None:
        """Cancel the loop's tasks, run the last ones, and stop; safe to call twice.

        Args:
            last: Coroutines to run last; their failures are ignored.
        """
        if not self._thread.is_alive():
            return

        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            while others:
                for task in others:
                    task.cancel()
                _, others = await asyncio.wait(others, timeout=1.0)
            await asyncio.gather(*last, return_exceptions=True)

        with contextlib.suppress(TimeoutError):
            self.run(end(), 30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)


@dataclass(slots=True)
class QueuedCompletion:
    """One completion of a request, by its index among the request's seeds."""

    pending: Pending
    index: int
    attempt: int = 1


@dataclass(eq=False, slots=True)
class Server:
    """State of one server.

    Attributes:
        name: Name in messages.
        client: Sends it requests.
        process: Its process, where this process started it.
        ready: Whether it answers and holds the weights sent last.
        given_up: Whether it was lost for good.
        holds_other_weights: Whether it holds the weights of another run, until ours are sent.
        restarts: How often it was started again.
        incarnation: Number of the process behind the address, as far as known.
        world: Number of its workers.
        first_worker: Index of its first worker among those of all servers.
        in_flight: A task for each completion in flight.
        failed: Completions it answered with an error, and the error, until it was checked.
        check_now: Set when it should be checked without waiting for the next interval.
    """

    name: str
    client: ServerClient
    process: ServerProcess | None = None
    ready: bool = False
    given_up: bool = False
    holds_other_weights: bool = False
    restarts: int = 0
    incarnation: int = 0
    world: int = 1
    first_worker: int = 0
    in_flight: set[asyncio.Task[None]] = field(default_factory=set)
    failed: list[tuple[QueuedCompletion, str]] = field(default_factory=list)
    check_now: asyncio.Event = field(default_factory=asyncio.Event)


class ServerPool:
    """Distributes the completions of requests over servers.

    Args:
        loop: The event loop.
        servers: The servers.
        stop_strings: Of the run's tokenizer.
        eos_ids: Tokens that end a completion.
        max_in_flight: Completions in flight at one server at a time.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        servers: list[Server],
        stop_strings: StopStrings,
        eos_ids: tuple[int, ...],
        max_in_flight: int,
    ) -> None:
        self.servers = servers
        self.run, self.version = "", 0
        self.held = False
        self.resent = 0
        self._stop_strings, self._eos_ids = stop_strings, eos_ids
        self._max_in_flight = max_in_flight
        self._queue: deque[QueuedCompletion] = deque()
        self._left: dict[int, Pending] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._state = threading.Condition()
        self._fault: RlvrError | None = None
        self._loop = loop

    # -- from any thread -------------------------------------------------------------------------

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request; its future is resolved by the loop's thread.

        Raises:
            RlvrError: If there is no server left.
        """
        pending = Pending(request)
        pending.finish()
        if not request.seeds:
            return pending.future
        with self._state:
            if self._fault is not None:
                raise self._fault
            self._left[id(pending)] = pending
        self._loop.call_soon_threadsafe(self._enqueue, pending)
        return pending.future

    def hold(self, version: int) -> None:
        """Send nothing to the servers until ``release``; weights of ``version`` will follow."""
        self.held, self.version = True, version

    def release(self) -> None:
        """Send requests again."""
        self.held = False
        self._loop.call_soon_threadsafe(self.dispatch)

    def cancel(self) -> None:
        """Cancel the future of every unanswered request."""
        done: Future[None] = Future()

        def drop() -> None:
            with self._state:
                left, self._left = list(self._left.values()), {}
                self._state.notify_all()
            for pending in left:
                pending.future.cancel()
            self._drop_work()
            done.set_result(None)

        self._loop.call_soon_threadsafe(drop)
        done.result()

    def wait(self, timeout: float | None) -> None:
        """Return when no request is left.

        Raises:
            RunError: If that takes longer than ``timeout`` seconds; the requests then fail.
            RlvrError: If there is no server left.
        """
        with self._state:
            done = self._state.wait_for(lambda: not self._left, timeout)
            left = sum(pending.answers.count(None) for pending in self._left.values())
        if self._fault is not None:
            raise self._fault
        if not done:
            error = RunError(
                f"generation was not finished within {timeout:g} s; {left} completions were left",
                remedy="raise run.timeout, or ask for fewer or shorter completions",
            )
            self._loop.call_soon_threadsafe(self._give_up, error)
            raise error

    def fail(self, error: RlvrError) -> None:
        """Fail every request, including later ones."""
        with self._state:
            self._fault = self._fault or error
        self._loop.call_soon_threadsafe(self._give_up, error)

    # -- on the loop -----------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Send queued completions to the servers with the fewest in flight."""
        while self._queue and not self.held:
            free = [
                server
                for server in self.servers
                if server.ready and len(server.in_flight) < self._max_in_flight
            ]
            if not free:
                return
            item = self._queue.popleft()
            if item.pending.future.done():
                continue  # another completion of it failed
            server = min(free, key=lambda server: len(server.in_flight))
            task = self.spawn(self._generate(item, server))
            server.in_flight.add(task)
            task.add_done_callback(partial(self._forget_task, server, item))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a background task; an exception in it fails every request."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(RunError(f"engine vllm-server failed: {one_line(error)}"))

    def mark_lost(self, server: Server) -> None:
        """Mark a server not ready, and queue its unanswered completions again."""
        server.ready = False
        for task in list(server.in_flight):
            task.cancel()
        failed, server.failed = server.failed, []
        for item, _ in failed:
            self._requeue(item)

    def mark_ready(self, server: Server) -> None:
        """Mark a server ready: it answers and holds the right weights, so its errors count."""
        failed, server.failed = server.failed, []
        for item, error in failed:
            self._retry(item, f"answered {error}")
        server.ready = True
        self.dispatch()

    def _forget_task(
        self, server: Server, item: QueuedCompletion, task: asyncio.Task[None]
    ) -> None:
        server.in_flight.discard(task)
        if task.cancelled():  # before it began; once begun, it requeues its item itself
            self._requeue(item)
        self.dispatch()

    def _enqueue(self, pending: Pending) -> None:
        self._queue.extend(
            QueuedCompletion(pending, index) for index in range(len(pending.answers))
        )
        self.dispatch()

    async def _generate(self, item: QueuedCompletion, server: Server) -> None:
        pending = item.pending
        request = pending.request
        stop_ids = self._stop_strings.special_ids(request.params.stop).union(self._eos_ids)
        body = generate_body(request, request.seeds[item.index], list(stop_ids))
        since = self.version
        try:
            # no deadline while the server lives: its monitor cancels this when it dies
            reply = await server.client.generate(body, seconds=None)
            versions = range(since, self.version + 1)
            answer = read_generation(reply, request, self._stop_strings.text, self.run, versions)
        except asyncio.CancelledError:
            self._requeue(item)
        except (GoneError, OtherWeightsError):
            server.ready = False
            server.check_now.set()
            self._requeue(item)
        except FaultError as error:
            if error.status < 500:
                self._resolve(pending, RunError(f"request {request.id}: vLLM refuses it: {error}"))
                return
            server.ready = False
            server.check_now.set()  # also if the engine is dead and only the HTTP server lives
            server.failed.append((item, str(error)))
        except RlvrError as error:
            self._resolve(pending, error)
        else:
            if answer is None:
                self._retry(item, "ended it by 'abort'")
            else:
                self._record_answer(item, answer)

    def _retry(self, item: QueuedCompletion, what: str) -> None:
        if item.attempt < MAX_ATTEMPTS:
            self._requeue(QueuedCompletion(item.pending, item.index, item.attempt + 1))
            return
        what = f"request {item.pending.request.id}: vLLM {what}, {MAX_ATTEMPTS} times"
        self._resolve(item.pending, RunError(what, remedy=VERBOSE))

    def _requeue(self, item: QueuedCompletion) -> None:
        if not item.pending.future.done():
            self.resent += 1
            self._queue.appendleft(item)

    def _record_answer(self, item: QueuedCompletion, answer: Generation) -> None:
        pending = item.pending
        assert pending.answers[item.index] is None, "a completion was answered twice"
        pending.answers[item.index] = answer
        if None not in pending.answers:
            self._resolve(pending, None)

    def _resolve(self, pending: Pending, error: RlvrError | None) -> None:
        if error is None:
            pending.finish()
        else:
            pending.fail(error)
        with self._state:
            self._left.pop(id(pending), None)
            self._state.notify_all()

    def _give_up(self, error: RlvrError) -> None:
        with self._state:
            left = list(self._left.values())
        for pending in left:
            self._resolve(pending, error)
        self._drop_work()

    def _drop_work(self) -> None:
        """Forget what waits, and cancel what is in flight."""
        self._queue.clear()
        for server in self.servers:
            server.failed = []
            for task in list(server.in_flight):
                task.cancel()
