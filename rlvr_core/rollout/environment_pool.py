"""Worker processes for environments: a call that hangs is ended, with the process it hangs in.

Each worker has a thread that sends it calls and waits for answers, with a deadline for each. A call
that passes it, or kills its process, fails; the calls behind it go to the next worker. States of
conversations are kept here between calls, so that no conversation is lost with a worker but the one
whose call ended it.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from rlvr_core.errors import RunError
from rlvr_core.rollout.environment_worker import Call, Setup
from rlvr_core.types import Json
from rlvr_core.verify.process import START_LIMIT, Worker
from rlvr_core.verify.worker import VerifierSpec

WORKER = "rlvr_core.rollout.environment_worker"
BATCH_SECONDS = 0.02
"""Work sent to a worker at once, so that a call of microseconds does not cost a round trip."""
BATCH_CALLS = 64


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
        self._setup = Setup(dict(specs))
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
        self._alive: dict[int, Worker[_Job]] = {}
        self._started = 0

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
            # processes are started as they are needed, by the thread that owns each
            if self._idle < len(self._queue) and self._started < len(self._threads):
                self._threads[self._started].start()
                self._started += 1
            self._awake.notify()
        return job.future

    def pids(self) -> list[int]:
        """Process ids of the workers alive now."""
        with self._awake:
            return list(self._alive)

    def close(self) -> None:
        """Kill the workers; calls still awaited fail. Safe to call twice."""
        with self._awake:
            self._closing = True
            left, self._queue = list(self._queue), deque()
            for worker in self._alive.values():
                worker.process.kill()
            self._awake.notify_all()
        for job in left:
            job.future.set_exception(EnvironmentFailedError("the pool of environments was closed"))
        for thread in self._threads[: self._started]:
            thread.join()

    # -- each worker's own thread; a worker dies with the thread that started it ------------------

    def _work(self) -> None:
        worker: Worker[_Job] | None = None
        while jobs := self._take():
            try:
                if worker is None:
                    worker = self._hire()
                worker = self._run(worker, jobs)
            except BaseException as error:
                self._fail(jobs, EnvironmentFailedError(f"{type(error).__name__}: {error}"))
                if worker is not None:
                    self._dismiss(worker)
                    worker = None
        if worker is not None:
            self._dismiss(worker)

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

    def _run(self, worker: Worker[_Job], jobs: list[_Job]) -> Worker[_Job] | None:
        """Have the calls made; the worker, or None if it had to end."""
        pending = deque(jobs)
        sent = worker.send([job.call for job in jobs], [])
        while pending:
            job = pending[0]
            limit = self._limits[job.call.name]
            lines = self._lines(worker, time.monotonic() + limit) if sent else []
            if not lines:
                fault: EnvironmentFailedError = EnvironmentTimeoutError(
                    f"{job.call.what} took longer than {limit:g} s"
                )
                if not sent or worker.hung_up:
                    cause = worker.cause_of_death()
                    fault = EnvironmentFailedError(f"{job.call.what}: its process ended, {cause}")
                self._dismiss(worker)
                pending.popleft()
                self._back(pending)
                job.future.set_exception(fault)
                return None
            for line in lines:
                _, seconds, answer = json.loads(line)
                self._settle(pending.popleft(), seconds, answer)
        return worker

    def _settle(self, job: _Job, seconds: float, answer: Json) -> None:
        mean = self._mean.get(job.call.name, seconds)
        self._mean[job.call.name] = 0.9 * mean + 0.1 * seconds
        if isinstance(answer, str):
            job.future.set_exception(EnvironmentFailedError(answer))
        else:
            job.future.set_result(answer)

    def _lines(self, worker: Worker[_Job], deadline: float) -> list[bytes]:
        """The next answers; none if the process ended or the deadline passed."""
        while not worker.hung_up:
            if not worker.connection.poll(max(deadline - time.monotonic(), 0.0)):
                return []
            lines = worker.receive()
            if lines:
                return lines
        return []

    def _hire(self) -> Worker[_Job]:
        worker: Worker[_Job] = Worker.start(self._setup, WORKER)
        with self._awake:
            self._alive[worker.pid] = worker
            if self._closing:
                worker.process.kill()
        if not self._lines(worker, time.monotonic() + START_LIMIT):
            cause = worker.cause_of_death() if worker.hung_up else f"not after {START_LIMIT:g} s"
            self._dismiss(worker)
            raise EnvironmentFailedError(f"its process did not start: {cause}")
        return worker

    def _dismiss(self, worker: Worker[_Job]) -> None:
        worker.kill()
        with self._awake:
            self._alive.pop(worker.pid, None)

    def _back(self, jobs: Sequence[_Job]) -> None:
        with self._awake:
            if not self._closing:
                self._queue.extendleft(reversed(jobs))
                self._awake.notify(len(jobs))
                return
        self._fail(jobs, EnvironmentFailedError("the pool of environments was closed"))

    def _fail(self, jobs: Sequence[_Job], error: EnvironmentFailedError) -> None:
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(error)
