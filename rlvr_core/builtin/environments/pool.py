"""Worker processes for environments: a call that hangs is ended, with the process it hangs in.

Each worker has a thread that sends it calls and waits for answers, with a deadline for each. A call
that passes it, or kills its process, fails. Calls are sent several at once, and those behind a slow
one are taken back and given to others. States of conversations are kept here between calls, so that
no conversation is lost with a worker but the one whose call ended it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from rlvr_core.api import Json, RunError
from rlvr_core.api.services import VerifierSpec
from rlvr_core.builtin.environments.process import EnvironmentProcess
from rlvr_core.builtin.environments.worker import Call

START_LIMIT = 120.0
"""Seconds a process has to start and to construct its environments."""
BATCH_SECONDS = 0.02
"""Work sent to a worker at once, so that a call of microseconds does not cost a round trip."""
BATCH_CALLS = 64
HOLD = 0.1
"""Seconds of a call after which those behind it in the same batch go to other workers."""


class EnvironmentFailedError(Exception):
    """A call of an environment that gave no answer; the message says why."""


class EnvironmentTimeoutError(EnvironmentFailedError):
    """A call that took too long; its process was killed."""


@dataclass(slots=True)
class _Job:
    call: Call
    future: Future[dict[str, Json]] = field(default_factory=Future)


class EnvironmentPool:
    """Makes calls of environments in processes of its own. Methods may be called from any thread.

    Args:
        specs: How to construct each environment, by full name.
        workers: Processes.
        timeout: Seconds a call may take, unless its environment has a ``time_limit`` of its own.
    """

    def __init__(self, specs: Mapping[str, VerifierSpec], *, workers: int, timeout: float) -> None:
        self._specs = dict(specs)
        self._limits = {name: spec.time_limit(timeout) for name, spec in specs.items()}
        self._closing = False
        self._queue: deque[_Job] = deque()
        self._awake = threading.Condition()
        self._mean: dict[str, float] = {}
        self._threads = [
            threading.Thread(target=self._work, name=f"environment-{i}", daemon=True)
            for i in range(workers)
        ]
        self._idle = 0
        self._alive: dict[int, EnvironmentProcess] = {}
        self._started = 0
        self._hiring = 0

    def submit(self, call: Call) -> Future[dict[str, Json]]:
        """Make a call; its future has the answer, or an ``EnvironmentFailedError``.

        Raises:
            RunError: If the pool is closed.
        """
        job = _Job(call)
        with self._awake:
            if self._closing:
                raise RunError("the pool of environments is closed")
            self._queue.append(job)
            self._grow()
            self._awake.notify()
        return job.future

    @property
    def starting(self) -> bool:
        """Whether processes are being started and none is there yet."""
        return 0 < self._hiring >= len(self._alive)

    def pids(self) -> list[int]:
        """Process ids of the workers alive now."""
        with self._awake:
            return list(self._alive)

    def close(self) -> None:
        """Kill the workers; calls still awaited fail. Safe to call twice."""
        with self._awake:
            self._closing = True
            left, self._queue = list(self._queue), deque()
            for process in self._alive.values():
                process.process.kill()
            self._awake.notify_all()
        for job in left:
            job.future.set_exception(EnvironmentFailedError("the pool of environments was closed"))
        for thread in self._threads[: self._started]:
            thread.join()

    # -- each worker's own thread; a worker dies with the thread that started it ------------------

    def _work(self) -> None:
        hand: EnvironmentProcess | None = None
        while jobs := self._take():
            try:
                if hand is None:
                    hand = self._spawn()
                hand = self._run(hand, jobs)
            except BaseException as error:
                self._fail(jobs, EnvironmentFailedError(f"{type(error).__name__}: {error}"))
                if hand is not None:
                    self._dismiss(hand)
                    hand = None
        if hand is not None:
            self._dismiss(hand)

    def _take(self) -> list[_Job]:
        """The next calls for one worker; none when the pool closes."""
        with self._awake:
            self._idle += 1
            self._awake.wait_for(lambda: self._queue or self._closing)
            self._idle -= 1
            most = min(BATCH_CALLS, -(-len(self._queue) // len(self._threads)))
            taken: list[_Job] = []
            expected = 0.0
            while self._queue and len(taken) < most:
                expected += self._mean.get(self._queue[0].call.name, BATCH_SECONDS)
                if taken and expected > BATCH_SECONDS:
                    break
                taken.append(self._queue.popleft())
            return taken

    def _run(self, hand: EnvironmentProcess, jobs: Sequence[_Job]) -> EnvironmentProcess | None:
        """Have the calls made; the worker, or None if it had to end."""
        pending = deque(jobs)
        skipped = 0
        sent = hand.send([job.call for job in jobs])
        begun = time.monotonic()
        while pending:
            limit = self._limits[pending[0].call.name]
            patience = limit if len(pending) == 1 else min(limit, HOLD)
            answers = hand.receive(begun + patience) if sent else []
            for seconds, answer in answers:
                self._settle(pending.popleft(), seconds, answer)
            if answers:
                begun = time.monotonic()
                continue
            dead = not sent or hand.hung_up
            if dead or time.monotonic() >= begun + limit:
                self._give_up(hand, pending, limit, dead=dead)
                return None
            back = hand.take_back()
            skipped += back
            self._back([pending.pop() for _ in range(back)][::-1])
        hand.skip(skipped)
        return hand

    def _give_up(
        self, hand: EnvironmentProcess, pending: deque[_Job], limit: float, *, dead: bool
    ) -> None:
        """End a worker for the call it is at; those behind it go to others."""
        job = pending.popleft()
        fault: EnvironmentFailedError = EnvironmentTimeoutError(
            f"{job.call.what} took longer than {limit:g} s"
        )
        if dead:
            cause = hand.cause_of_death()
            fault = EnvironmentFailedError(f"{job.call.what}: its process ended, {cause}")
        self._dismiss(hand)
        self._back(pending)
        job.future.set_exception(fault)

    def _settle(self, job: _Job, seconds: float, answer: Json) -> None:
        mean = self._mean.get(job.call.name, seconds)
        self._mean[job.call.name] = 0.9 * mean + 0.1 * seconds
        if isinstance(answer, str):
            job.future.set_exception(EnvironmentFailedError(answer))
        else:
            job.future.set_result(answer)

    def _spawn(self) -> EnvironmentProcess:
        with self._awake:
            self._hiring += 1
        try:
            return self._ready()
        finally:
            with self._awake:
                self._hiring -= 1

    def _ready(self) -> EnvironmentProcess:
        hand = EnvironmentProcess(self._specs)
        with self._awake:
            self._alive[hand.pid] = hand
            if self._closing:
                hand.process.kill()
        if not hand.receive(time.monotonic() + START_LIMIT):
            cause = hand.cause_of_death() if hand.hung_up else f"not after {START_LIMIT:g} s"
            self._dismiss(hand)
            raise EnvironmentFailedError(f"its process did not start: {cause}")
        return hand

    def _dismiss(self, hand: EnvironmentProcess) -> None:
        hand.kill()
        with self._awake:
            self._alive.pop(hand.pid, None)

    def _back(self, jobs: Sequence[_Job]) -> None:
        with self._awake:
            if not self._closing:
                self._queue.extendleft(reversed(jobs))
                self._grow()
                self._awake.notify(len(jobs))
                return
        self._fail(jobs, EnvironmentFailedError("the pool of environments was closed"))

    def _grow(self) -> None:
        """Start another worker if there is more to do than idle ones can take up.

        Processes are started as they are needed, each by the thread that owns it.
        """
        if self._idle < len(self._queue) and self._started < len(self._threads):
            self._threads[self._started].start()
            self._started += 1

    def _fail(self, jobs: Sequence[_Job], error: EnvironmentFailedError) -> None:
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(error)
