"""A pool of worker processes that can be killed, so that no call can block or crash the others.

Components are constructed in every worker; a call goes to any free worker, and its clock starts
when it begins. The pool replaces workers that die, and kills and replaces a worker whose call
passes its deadline. Calls are sent in batches, each call with a ticket in a socket that both worker
and pool read: whoever reads the ticket owns the call. So the pool can take back calls that wait
behind a slow one and give them to other workers, and it knows which call a dead worker was making.

Why not pebble or ``ProcessPoolExecutor``: pebble stops all its workers for three seconds for each
one that must be killed while in C code, and gives up for good if a worker dies at the wrong moment;
``ProcessPoolExecutor`` never kills a worker. Both re-import the trainer's main module in workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Literal

from rlvr_core.api import Json, RunError
from rlvr_core.workers.process import REPORT_EVERY, TICKETS, Child, ComponentSpec, describe_error

BATCH_SECONDS = 0.02
"""Seconds of work in a batch, so that calls of microseconds do not cost a round trip each."""
BATCH_CALLS = 64
RUNNING_OUT = 0.005
"""Seconds of remaining work below which a worker is sent its next batch in advance."""
HOLD = 0.1
"""Seconds after which the calls waiting behind a running call are given to other workers."""
FALSE_STARTS = 3
"""Consecutive workers that may die before beginning a call; then the pool gives up."""
START_LIMIT = 120.0
"""Seconds a worker may take to start, to construct each component, and to receive a batch."""
MAX_LINE = 2**30
"""Largest size of an answer in bytes."""
_READ = 2**20


_Kind = Literal["raised", "memory", "died", "timeout", "construct", "start", "closed"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a call failed.

    Attributes:
        kind: ``raised``: the call raised an exception; ``memory``: it exceeded its memory;
            ``died``: its process died; ``timeout``: it took too long; ``construct``: its component
            cannot be constructed; ``start``: no worker starts; ``closed``: the pool was closed.
        detail: What happened, in words.
    """

    kind: _Kind
    detail: str


@dataclass(slots=True)
class PoolCall:
    """One call of a component.

    Attributes:
        name: Name of the component.
        payload: Argument for the pool's handler, besides the component.
        limit: Seconds the call may take after it has begun.
        done: Called in the pool's thread with the answer or fault, and the seconds taken.
        retried: Whether it is a second attempt, after its worker died.
    """

    name: str
    payload: tuple[bytes, ...]
    limit: float
    done: Callable[[Json, Fault | None, float], None]
    retried: bool = False


class _RubbishError(Exception):
    """A worker sent something that is not a report."""


class _Worker(Child):
    """One worker process, as the pool sees it.

    Attributes:
        batch: Calls sent and not yet answered, in order.
        began: ``time.monotonic()`` at the start of the first of them; None before that.
        deadline: ``time.monotonic()`` after which it is killed; None if nothing is awaited.
        held: Whether the calls waiting behind the current one were taken back.
        ready: Whether all components are constructed.
        constructing: The component being constructed, until it is ready.
        answered: Number of calls answered.
        outbox: Bytes not yet sent: the pool never blocks on a worker that hangs.
    """

    def __init__(self, setup: object) -> None:
        self._give, self._take = socket.socketpair()
        # Fixed hashing and one thread: the same answers in every worker, no competition with the
        # trainer.
        fixed = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        super().__init__("rlvr_core.workers.child", [self._take.fileno()], env=os.environ | fixed)
        self.socket.setblocking(False)
        self.batch: deque[PoolCall] = deque()
        self.began: float | None = None
        self.deadline: float | None = time.monotonic() + START_LIMIT
        self.held = self.ready = False
        self.constructing: str | None = None
        self.answered = self._sent = self._unread_bytes = 0
        self.outbox = pickle.dumps(setup, pickle.HIGHEST_PROTOCOL)
        self._unread: list[bytes] = []

    def send(self, calls: Sequence[PoolCall]) -> None:
        """Send calls to the worker."""
        if not self.batch:
            self.deadline = time.monotonic() + START_LIMIT
        self.batch.extend(calls)
        message = [(call.name, call.payload, call.limit) for call in calls]
        self.outbox += pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._give.send(bytes((self._sent + i) % TICKETS for i in range(len(calls))))
        self._sent += len(calls)

    def flush(self) -> None:
        """Send as much as it accepts now; if it has died, reading will find the end of file."""
        left = memoryview(self.outbox)
        try:
            while left:
                left = left[self.socket.send(left) :]
        except BlockingIOError:
            pass
        except OSError:
            left = left[:0]
        self.outbox = bytes(left)

    def begin(self, now: float) -> None:
        """Start the clock of the first unreported call in the batch at ``now``."""
        self.began, self.deadline = now, now + self.batch[0].limit + REPORT_EVERY

    @property
    def hold_at(self) -> float | None:
        """Return when to take back the calls behind the first one; None if there are none."""
        waits = len(self.batch) > 1 and not self.held
        return self.began + HOLD if waits and self.began is not None else None

    def take_back(self) -> list[PoolCall]:
        """Take back the calls of its batch that it has not begun."""
        try:
            count = len(self._take.recv(TICKETS, socket.MSG_DONTWAIT))
        except BlockingIOError:
            count = 0
        taken = [self.batch.pop() for _ in range(count)][::-1]
        if not self.batch:  # it had not begun the first one either: nothing is awaited of it
            self.held, self.began, self.deadline = False, None, None
        return taken

    def has_news(self) -> bool:
        """Whether output or an end of file is waiting to be read."""
        return bool(wait([self.socket], 0))

    def read(self) -> list[bytes] | None:
        """Return all complete lines received; None if the worker has closed its connection.

        Raises:
            _RubbishError: If a line is too long.
        """
        try:
            news = self.socket.recv(_READ)
        except OSError as error:
            return [] if isinstance(error, BlockingIOError) else None
        *lines, rest = news.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._unread, lines[0]])
            self._unread, self._unread_bytes = [], 0
        self._unread.append(rest)
        self._unread_bytes += len(rest)
        if self._unread_bytes > MAX_LINE:
            raise _RubbishError(f"a line of more than {MAX_LINE:,} bytes")
        return lines if news else None

    def kill(self) -> None:
        """Kill it and its process group; safe if it has already ended."""
        super().kill()
        self._give.close()
        self._take.close()


class ProcessPool:
    """Makes calls of components in worker processes. Methods may be called from any thread.

    Args:
        name: Name of the pool in errors.
        specs: How to construct each component, by name.
        handler: ``module:function`` that makes a call in the worker: it receives the component and
            the call's payload, and returns a JSON-serialisable value.
        workers: Number of processes.
        memory_mb: MiB a worker may take beyond what it holds when idle; None for no limit.
        repeatable: Whether a call may be made twice. Workers then report quick calls together, and
            calls that were made but not reported when a worker died are made again; a call whose
            worker died or ran out of memory is tried once more, unless it was the worker's first.
        lazy: Whether to start workers on demand rather than immediately.
    """

    def __init__(
        self,
        name: str,
        specs: Mapping[str, ComponentSpec],
        handler: str,
        workers: int,
        *,
        memory_mb: int | None = None,
        repeatable: bool = False,
        lazy: bool = False,
    ) -> None:
        self._name, self._specs, self._size, self._lazy = name, dict(specs), workers, lazy
        self._setup, self._repeatable = (handler, memory_mb, repeatable), repeatable
        self._seconds: dict[str, float] = {}
        self._deaths: Counter[str] = Counter()
        self._broken: dict[str, str] = {}
        self._false_starts, self._reason = 0, ""
        self._workers: list[_Worker] = []
        self._queue: deque[PoolCall] = deque()
        self._lock = threading.Lock()
        self._closing, self._why_closed = False, f"the {name} is closed"
        self._wake_r, self._wake_w = socket.socketpair()
        self._woken = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_r, selectors.EVENT_READ)
        # Workers die with the thread that started them, so one thread starts all of them.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    # -- public methods --------------------------------------------------------------------------

    def submit(self, calls: Iterable[PoolCall], *, first: bool = False) -> None:
        """Submit calls.

        Args:
            calls: Calls of the pool's components.
            first: Whether to queue them before all others; for calls submitted by
                ``PoolCall.done``.

        Raises:
            RunError: If the pool is closed. Calls submitted by ``PoolCall.done`` during closing
                fail instead, like all waiting calls.
        """
        calls = list(calls)
        with self._lock:
            if self._closing and threading.current_thread() is not self._thread:
                raise RunError(self._why_closed)
            if first:
                self._queue.extendleft(reversed(calls))
            else:
                self._queue.extend(calls)
            # Only now: the thread takes calls without the lock, and may have emptied the queue
            # while it was being filled.
            self._wake()

    @property
    def starting(self) -> bool:
        """Whether calls wait and no worker is ready yet."""
        workers = list(self._workers)
        return bool(workers or self._queue) and not any(worker.ready for worker in workers)

    def pids(self) -> list[int]:
        """Process ids of the living workers."""
        return [worker.pid for worker in list(self._workers)]

    def close(self) -> None:
        """Kill the workers; pending calls fail. Safe to call twice."""
        with self._lock:
            self._closing = True
        self._wake()
        if threading.current_thread() is not self._thread:  # false if called from ``PoolCall.done``
            self._thread.join()

    # -- the pool's own thread -----------------------------------------------------------------

    def _wake(self) -> None:
        if self._woken:
            return
        self._woken = True
        with contextlib.suppress(OSError):  # closed
            self._wake_w.send(b"!", socket.MSG_DONTWAIT)

    def _run(self) -> None:
        reason = f"the {self._name} was closed"
        try:
            while not self._closing:
                self._spawn()
                self._refuse()
                self._assign()
                self._listen()
                self._check_clocks()
        except BaseException as error:
            reason = self._why_closed = f"the {self._name} failed: {describe_error(error)}"
            raise
        finally:
            with self._lock:
                self._closing = True
            for worker in self._workers:
                self._queue.extendleft(reversed(worker.batch))
                worker.kill()
            self._workers.clear()
            while self._queue:
                self._queue.popleft().done(None, Fault("closed", reason), 0.0)
            self._selector.close()
            self._wake_r.close()
            self._wake_w.close()

    def _spawn(self) -> None:
        while len(self._workers) < self._size and self._false_starts < FALSE_STARTS:
            if self._lazy and len(self._queue) <= sum(not one.batch for one in self._workers):
                return
            specs = {name: spec for name, spec in self._specs.items() if name not in self._broken}
            worker = _Worker((specs, *self._setup))
            self._workers.append(worker)
            self._selector.register(worker.socket, selectors.EVENT_READ, worker)
            self._flush(worker)

    def _flush(self, worker: _Worker) -> None:
        worker.flush()
        writes = selectors.EVENT_WRITE if worker.outbox else 0
        self._selector.modify(worker.socket, selectors.EVENT_READ | writes, worker)

    def _refuse(self) -> None:
        """Fail the calls that no worker can make."""
        none = self._false_starts >= FALSE_STARTS and not any(one.ready for one in self._workers)
        for _ in range(len(self._queue) if none or self._broken else 0):
            call = self._queue.popleft()
            if call.name in self._broken:
                call.done(None, Fault("construct", self._broken[call.name]), 0.0)
            elif none:
                call.done(None, Fault("start", self._reason), 0.0)
            else:
                self._queue.append(call)

    def _assign(self) -> None:
        free = sorted(filter(self._runs_out, self._workers), key=lambda worker: len(worker.batch))
        for left, worker in zip(range(len(free), 0, -1), free, strict=True):
            batch: list[PoolCall] = []
            seconds, most = 0.0, min(BATCH_CALLS, -(-len(self._queue) // left))
            while self._queue and len(batch) < most:
                seconds += self._expected(self._queue[0])
                if batch and seconds > BATCH_SECONDS:
                    break
                batch.append(self._queue.popleft())
            if batch:
                worker.send(batch)
                self._flush(worker)

    def _runs_out(self, worker: _Worker) -> bool:
        """Whether a worker should be sent its next batch."""
        if not worker.ready or worker.held or len(worker.batch) > BATCH_CALLS:
            return False
        return sum(map(self._expected, worker.batch)) < RUNNING_OUT

    def _expected(self, call: PoolCall) -> float:
        """Estimate the seconds a call takes."""
        return self._seconds.get(call.name, BATCH_SECONDS)

    def _listen(self) -> None:
        clocks = [c for one in self._workers for c in (one.deadline, one.hold_at) if c is not None]
        # check regularly for workers that died silently
        patience = min(max(min(clocks) - time.monotonic(), 0.0), 1.0) if clocks else None
        for key, events in self._selector.select(patience):
            if key.data is None:
                self._wake_r.recv(4096)
                self._woken = False  # before the queue is read: a later call wakes it again
                continue
            if events & selectors.EVENT_WRITE:
                self._flush(key.data)
            if events & selectors.EVENT_READ:
                self._hear(key.data)

    def _hear(self, worker: _Worker) -> None:
        """Process the messages of a worker."""
        try:
            lines = worker.read()
            if lines is None:
                self._end(worker, "died", worker.cause_of_death())
            for line in lines or ():
                if worker in self._workers:
                    self._take_in(worker, line)
        except _RubbishError as error:
            self._end(worker, "died", f"it wrote to the pool's connection: {error}")

    def _take_in(self, worker: _Worker, line: bytes) -> None:
        try:
            kind, content = json.loads(line)
        except (ValueError, TypeError, RecursionError) as error:
            raise _RubbishError(describe_error(error)) from error
        if kind == "done" and len(content) <= len(worker.batch):
            for now, seconds, answer, fault in content:
                self._answered(worker, now, seconds, answer, fault and Fault(*fault))
        elif kind == "start" and worker.batch:
            worker.begin(content)
        elif kind == "constructing":
            worker.constructing = content
            worker.deadline = time.monotonic() + START_LIMIT
        elif kind == "ready":
            self._broken.update(content)
            worker.ready, worker.deadline = True, None
        else:
            raise _RubbishError(f"an unexpected {str(kind)[:50]!r}")

    def _answered(
        self, worker: _Worker, now: float, seconds: float, answer: Json, fault: Fault | None
    ) -> None:
        if fault is not None and fault.kind == "memory":
            self._end(worker, "memory", fault.detail, seconds)
            return
        call = worker.batch.popleft()
        worker.answered += 1
        worker.held, worker.began, worker.deadline = False, None, None
        if worker.batch:
            worker.begin(now)
        self._false_starts = 0
        self._seconds[call.name] = 0.9 * self._seconds.get(call.name, seconds) + 0.1 * seconds
        call.done(answer, fault, seconds)

    def _check_clocks(self) -> None:
        now = time.monotonic()
        for worker in list(self._workers):
            late = worker.deadline is not None and now >= worker.deadline
            if not late and not worker.is_dead():
                if worker.hold_at is not None and now >= worker.hold_at:
                    worker.held = True
                    self.submit(worker.take_back(), first=True)
            elif worker.has_news():
                continue  # it reported in time; this process was late to read
            elif not late:
                self._end(worker, "died", worker.cause_of_death())
            elif worker.began is None:
                self._end(worker, "timeout", f"not done after {START_LIMIT:g} s", START_LIMIT)
            else:
                limit = worker.batch[0].limit
                self._end(worker, "timeout", f"took longer than {limit:g} s", limit)

    def _end(self, worker: _Worker, kind: _Kind, detail: str, seconds: float = 0.0) -> None:
        """End a worker and fail its current call with this fault; requeue its other calls."""
        waiting = worker.take_back()
        self._workers.remove(worker)
        self._selector.unregister(worker.socket)
        worker.kill()
        *done, call = worker.batch or (None,)
        if call is None:
            if worker.constructing is not None and not worker.ready:
                self._deaths[worker.constructing] += 1
                if self._deaths[worker.constructing] > 1:  # a first death may be an accident
                    self._broken[worker.constructing] = detail
            elif waiting or not worker.ready:
                self._false_starts, self._reason = self._false_starts + 1, detail
            self.submit(waiting, first=True)
            return
        worn = kind != "timeout" and worker.answered + len(done) > 0
        retry = self._repeatable and worn and not call.retried
        self.submit([*done, *([call] if retry else []), *waiting], first=True)
        if retry:
            call.retried = True  # it may not have caused the death
        else:
            call.done(None, Fault(kind, detail), seconds)
