"""Requests spread over vLLM servers: nothing lost and nothing counted twice when one dies.

All of it lives on one event loop, in a thread of its own; only what is marked so may be called from
elsewhere. A completion is a job. A job is in the queue or at one server, never in both, and leaves
when its answer is there. What a server has not answered when it is lost goes back to the head of
the queue, with the seed it had.
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

from rlvr_core.api import Generation, GenerationRequest, RlvrError, RunError
from rlvr_core.api.services import StopStrings
from rlvr_core.builtin.vllm.client import (
    FaultError,
    GoneError,
    OtherWeightsError,
    ServerClient,
    generate_body,
    read_generation,
)
from rlvr_core.builtin.vllm.process import VERBOSE, first_line
from rlvr_core.builtin.vllm.server_process import ServerProcess

MAX_ATTEMPTS = 3
"""How often a living server may fail to answer a completion before that is an error."""


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="vllm-servers", daemon=True
        )
        self._thread.start()

    def spawn(self, work: Any) -> Future[Any]:
        """Begin a coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self, last: Sequence[Coroutine[Any, Any, None]] = ()) -> None:
        """Cancel what goes on, do what is left to do, and stop; safe to call twice.

        Args:
            last: What is left; its failures do not matter any more.
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
            self.spawn(end()).result(30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)


@dataclass(slots=True)
class Pending:
    """A submitted request and its answers so far, in seed order."""

    request: GenerationRequest
    future: Future[tuple[Generation, ...]]
    answers: list[Generation | None]
    missing: int


@dataclass(slots=True)
class Job:
    """One completion of a request."""

    pending: Pending
    index: int
    attempt: int = 1


@dataclass(eq=False, slots=True)
class Server:
    """A server and what is known of it.

    Attributes:
        name: For people.
        client: Speaks to it.
        process: What runs it, where this process started it.
        ready: It lives and holds the weights that were given last.
        given_up: Nobody tries any longer to bring it back.
        strange: It holds the weights of another run, until it is given ours.
        restarts: How often it was started again.
        born: Counts the processes behind the address, as far as known.
        world: Its workers.
        first_worker: Number of the first of them among those of all servers.
        jobs: What it is to answer.
        failed: Jobs it answered with an error, until it is known whether it lives, and the error.
        alarm: Set when it should be looked at.
    """

    name: str
    client: ServerClient
    process: ServerProcess | None = None
    ready: bool = False
    given_up: bool = False
    strange: bool = False
    restarts: int = 0
    born: int = 0
    world: int = 1
    first_worker: int = 0
    jobs: set[asyncio.Task[None]] = field(default_factory=set)
    failed: list[tuple[Job, str]] = field(default_factory=list)
    alarm: asyncio.Event = field(default_factory=asyncio.Event)


class Pool:
    """Jobs and the servers that do them.

    Args:
        servers: Where jobs go.
        stop_strings: Of the run's tokenizer.
        eos_ids: Tokens that end a completion.
        most: Jobs at one server at a time.
    """

    def __init__(
        self,
        servers: list[Server],
        stop_strings: StopStrings,
        eos_ids: tuple[int, ...],
        most: int,
    ) -> None:
        self.servers = servers
        self.run, self.version = "", 0
        self.held = False
        self.resent = 0
        self._stop_strings, self._eos_ids, self._most = stop_strings, eos_ids, most
        self._queue: deque[Job] = deque()
        self._left: dict[int, Pending] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._state = threading.Condition()
        self._fault: RlvrError | None = None
        self._loop = asyncio.get_running_loop()

    # -- from any thread -------------------------------------------------------------------------

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request; its future is resolved by the loop's thread.

        Raises:
            RlvrError: If there is no server left.
        """
        n = len(request.seeds)
        pending = Pending(request, Future(), [None] * n, n)
        if n == 0:
            pending.future.set_result(())
            return pending.future
        with self._state:
            if self._fault is not None:
                raise self._fault
            self._left[id(pending)] = pending
        self._loop.call_soon_threadsafe(self._enqueue, pending)
        return pending.future

    def hold(self, version: int) -> None:
        """Give no server anything to do until ``release``; weights of ``version`` are to come."""
        self.held, self.version = True, version

    def release(self) -> None:
        """Go on."""
        self.held = False
        self._loop.call_soon_threadsafe(self.pump)

    def cancel(self) -> None:
        """Cancel the future of every request that is not answered."""
        done: Future[None] = Future()

        def drop() -> None:
            with self._state:
                left, self._left = list(self._left.values()), {}
                self._state.notify_all()
            self._queue.clear()
            for pending in left:
                pending.future.cancel()
            for server in self.servers:
                server.failed = []
                for task in list(server.jobs):
                    task.cancel()
            done.set_result(None)

        self._loop.call_soon_threadsafe(drop)
        done.result()

    def wait(self, timeout: float | None) -> None:
        """Return when no request is left.

        Raises:
            RunError: If that took longer than ``timeout`` seconds; they are given up then.
            RlvrError: If there is no server left.
        """
        with self._state:
            done = self._state.wait_for(lambda: not self._left, timeout)
            left = sum(pending.missing for pending in self._left.values())
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
        """Fail every request, and all to come."""
        with self._state:
            self._fault = self._fault or error
        self._loop.call_soon_threadsafe(self._give_up, error)

    # -- on the loop -----------------------------------------------------------------------------

    def pump(self) -> None:
        """Give jobs to the servers with least to do."""
        while self._queue and not self.held:
            free = [one for one in self.servers if one.ready and len(one.jobs) < self._most]
            if not free:
                return
            job = self._queue.popleft()
            if job.pending.future.done():
                continue  # another completion of it failed
            server = min(free, key=lambda one: len(one.jobs))
            task = self.spawn(self._do(job, server))
            server.jobs.add(task)
            task.add_done_callback(partial(self._leave, server, job))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin work that nobody waits for; a mistake in it fails every request."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(RunError(f"engine vllm-server failed: {first_line(error)}"))

    def lose(self, server: Server) -> None:
        """Take back what a server has not answered."""
        server.ready = False
        for task in list(server.jobs):
            task.cancel()
        failed, server.failed = server.failed, []
        for job, _ in failed:
            self._again(job)

    def trust(self, server: Server) -> None:
        """A server lives and holds the right weights: it may work, and its errors were its own."""
        failed, server.failed = server.failed, []
        for job, error in failed:
            self._tried(job, f"answered {error}")
        server.ready = True
        self.pump()

    def _leave(self, server: Server, job: Job, task: asyncio.Task[None]) -> None:
        server.jobs.discard(task)
        if task.cancelled():  # before it began: one that is under way takes its job back itself
            self._again(job)
        self.pump()

    def _enqueue(self, pending: Pending) -> None:
        self._queue.extend(Job(pending, index) for index in range(pending.missing))
        self.pump()

    async def _do(self, job: Job, server: Server) -> None:
        pending = job.pending
        request = pending.request
        stop_ids = self._stop_strings.special_ids(request.params.stop).union(self._eos_ids)
        body = generate_body(request, request.seeds[job.index], sorted(stop_ids))
        since = self.version
        try:
            # as long as the server lives: whoever watches it cancels this when it does not
            found = await server.client.generate(body, seconds=None)
            versions = range(since, self.version + 1)
            answer = read_generation(found, request, self._stop_strings.text, self.run, versions)
        except asyncio.CancelledError:
            self._again(job)
        except (GoneError, OtherWeightsError):
            server.ready = False
            server.alarm.set()
            self._again(job)
        except FaultError as error:
            if error.status < 500:
                self._settle(pending, RunError(f"request {request.id}: vLLM refuses it: {error}"))
                return
            server.ready = False
            server.alarm.set()  # a dead engine behind a living front says so too
            server.failed.append((job, str(error)))
        except RlvrError as error:
            self._settle(pending, error)
        else:
            if answer is None:
                self._tried(job, "ended it by 'abort'")
            else:
                self._take(job, answer)

    def _tried(self, job: Job, what: str) -> None:
        if job.attempt < MAX_ATTEMPTS:
            self._again(Job(job.pending, job.index, job.attempt + 1))
            return
        what = f"request {job.pending.request.id}: vLLM {what}, {MAX_ATTEMPTS} times"
        self._settle(job.pending, RunError(what, remedy=VERBOSE))

    def _again(self, job: Job) -> None:
        if not job.pending.future.done():
            self.resent += 1
            self._queue.appendleft(job)

    def _take(self, job: Job, answer: Generation) -> None:
        pending = job.pending
        assert pending.answers[job.index] is None, "a completion was answered twice"
        pending.answers[job.index] = answer
        pending.missing -= 1
        if pending.missing == 0:
            self._settle(pending, None)

    def _settle(self, pending: Pending, error: RlvrError | None) -> None:
        if not pending.future.done():
            if error is None:
                found = tuple(one for one in pending.answers if one is not None)
                pending.future.set_result(found)
            else:
                pending.future.set_exception(error)
        with self._state:
            self._left.pop(id(pending), None)
            self._state.notify_all()

    def _give_up(self, error: RlvrError) -> None:
        with self._state:
            left = list(self._left.values())
        for pending in left:
            self._settle(pending, error)
        self._queue.clear()
        for server in self.servers:
            server.failed = []
            for task in list(server.jobs):
                task.cancel()
