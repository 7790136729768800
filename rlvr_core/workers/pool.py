"""The pool of processes that can be killed: no call can hold up or fell the others.

Components are constructed in each worker; a call is made in whichever is free, and its clock starts
when it begins. The pool kills and replaces a worker whose call passes its deadline and one that
dies. Several calls are sent at once, each with a ticket in a socket that worker and pool both read:
whoever reads the ticket has the call. So calls behind a slow one are taken back and given to other
workers, and the pool knows which call a dead worker was at.

Why not pebble or ``ProcessPoolExecutor``: the first stops all its workers for three seconds for
each one that must be killed while in C code, and gives up for good when a worker dies in the
wrong moment; the second never kills at all. Both re-import the trainer's main module in workers.
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
"""Work sent to a worker at once, so that a call of microseconds does not cost a round trip."""
BATCH_CALLS = 64
RUNNING_OUT = 0.005
"""Work left to a worker below which it is sent the next batch, so that it need not wait for it."""
HOLD = 0.1
"""Seconds of a call after which those behind it go to other workers."""
FALSE_STARTS = 3
"""Workers in a row that die before they have begun a call, after which the pool gives up."""
START_LIMIT = 120.0
"""Seconds a worker has to start, to construct each component, and to take in a batch."""
MAX_LINE = 2**30
"""Bytes of an answer."""
_READ = 2**20


_Kind = Literal["raised", "memory", "died", "timeout", "construct", "start", "closed"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a call has no answer.

    Attributes:
        kind: ``raised``: it raised an exception; ``memory``: it used all its memory; ``died``: its
            process died; ``timeout``: it took too long; ``construct``: its component cannot be
            constructed; ``start``: no worker starts; ``closed``: the pool was closed.
        detail: What happened, in words.
    """

    kind: _Kind
    detail: str


@dataclass(slots=True)
class PoolCall:
    """One call of a component.

    Attributes:
        name: The component's.
        payload: What the pool's handler is given besides the component.
        limit: Seconds it may take, from its beginning.
        done: Called in the pool's thread with the answer, or the fault, and the seconds it took.
        retried: Whether it was in a worker that died.
    """

    name: str
    payload: tuple[bytes, ...]
    limit: float
    done: Callable[[Json, Fault | None, float], None]
    retried: bool = False


class _RubbishError(Exception):
    """What a worker wrote is no report."""


class _Worker(Child):
    """One worker process, as the pool sees it.

    Attributes:
        batch: Calls it has been sent and has not answered, in order.
        began: ``time.monotonic()`` when it began the first of them; None if it has not.
        deadline: ``time.monotonic()`` after which it is killed; None when it owes nothing.
        held: Whether the calls behind a slow one were taken back.
        ready: Whether its components are constructed.
        constructing: The component it constructs, until it is ready.
        answered: Calls it has reported.
        outbox: What it has not taken yet: sending never waits for a worker that hangs.
    """

    def __init__(self, setup: object) -> None:
        self._give, self._take = socket.socketpair()
        # The same answers in every worker and run, and no thread pools beside the trainer.
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
        """Give it work."""
        if not self.batch:
            self.deadline = time.monotonic() + START_LIMIT
        self.batch.extend(calls)
        message = [(call.name, call.payload, call.limit) for call in calls]
        self.outbox += pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._give.send(bytes((self._sent + i) % TICKETS for i in range(len(calls))))
        self._sent += len(calls)

    def flush(self) -> None:
        """Send what it takes now; if it is gone, whoever reads from it finds the end of file."""
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
        """It has begun the first call of its batch, or one reported with it, at ``now``."""
        self.began, self.deadline = now, now + self.batch[0].limit + REPORT_EVERY

    @property
    def hold_at(self) -> float | None:
        """When calls behind the first are to be taken back; None if there are none."""
        waits = len(self.batch) > 1 and not self.held
        return self.began + HOLD if waits and self.began is not None else None

    def take_back(self) -> list[PoolCall]:
        """Take from its batch what it has not begun, and will not."""
        try:
            count = len(self._take.recv(TICKETS, socket.MSG_DONTWAIT))
        except BlockingIOError:
            count = 0
        return [self.batch.pop() for _ in range(count)][::-1]

    def has_news(self) -> bool:
        """Whether something it wrote, or its end of file, is still unread."""
        return bool(wait([self.socket], 0))

    def read(self) -> list[bytes] | None:
        """Every whole line that has come; None when its end of the connection is closed.

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
        """End it and the processes of its group. Does not fail if it is gone."""
        super().kill()
        self._give.close()
        self._take.close()


class ProcessPool:
    """Makes calls of components in processes of its own. Methods may be called from any thread.

    Args:
        name: What the pool is called in errors.
        specs: How to construct each component, by name.
        handler: ``module:function`` that makes a call in the worker: it is given the component and
            the call's payload, and gives what fits into JSON.
        workers: Processes.
        memory_mb: MiB a worker may take beyond what it holds when idle; None for no limit.
        repeatable: Whether a call may be made twice. Workers then report quick calls together, and
            make those again that were done but not reported when they died; a call whose worker
            died or ran out of memory is tried once more, unless the worker had made no other.
        lazy: Whether workers are started as they are needed, and not at once.
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
        self._closing = False
        self._wake_r, self._wake_w = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_r, selectors.EVENT_READ)
        # Workers die with the thread that started them, hence one thread that starts them all.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    # -- for callers ---------------------------------------------------------------------------

    def submit(self, calls: Iterable[PoolCall], *, first: bool = False) -> None:
        """Have calls made.

        Args:
            calls: Of components of the pool.
            first: Whether they go before all that wait: for what ``PoolCall.done`` submits.

        Raises:
            RunError: If the pool is closed. What ``PoolCall.done`` submits then fails with the
                calls that still wait.
        """
        with self._lock:
            if self._closing and threading.current_thread() is not self._thread:
                raise RunError(f"the {self._name} is closed")
            if first:
                self._queue.extendleft(reversed(list(calls)))
            else:
                self._queue.extend(calls)
        self._wake()

    @property
    def starting(self) -> bool:
        """Whether there is something to do, and no worker yet that could."""
        workers = list(self._workers)
        return bool(workers or self._queue) and not any(worker.ready for worker in workers)

    def pids(self) -> list[int]:
        """Process ids of the workers alive now."""
        return [worker.pid for worker in list(self._workers)]

    def close(self) -> None:
        """Kill the workers; calls still awaited fail. Safe to call twice."""
        with self._lock:
            self._closing = True
        self._wake()
        if threading.current_thread() is not self._thread:  # as it is in ``PoolCall.done``
            self._thread.join()

    # -- the pool's own thread -----------------------------------------------------------------

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is awake already, or gone
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
            reason = f"the {self._name} failed: {describe_error(error)}"
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
        """Whether a worker should have more to do."""
        if not worker.ready or worker.held or len(worker.batch) > BATCH_CALLS // 2:
            return False
        return sum(map(self._expected, worker.batch)) < RUNNING_OUT

    def _expected(self, call: PoolCall) -> float:
        """Seconds a call may take."""
        return self._seconds.get(call.name, BATCH_SECONDS)

    def _listen(self) -> None:
        clocks = [c for one in self._workers for c in (one.deadline, one.hold_at) if c is not None]
        # look for silently dead workers now and then
        patience = min(max(min(clocks) - time.monotonic(), 0.0), 1.0) if clocks else None
        for key, events in self._selector.select(patience):
            if key.data is None:
                self._wake_r.recv(4096)
                continue
            if events & selectors.EVENT_WRITE:
                self._flush(key.data)
            if events & selectors.EVENT_READ:
                self._hear(key.data)

    def _hear(self, worker: _Worker) -> None:
        """Take in what has come."""
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
                continue  # it did report in time; this process was late to listen
            elif not late:
                self._end(worker, "died", worker.cause_of_death())
            elif worker.began is None:
                self._end(worker, "timeout", f"not done after {START_LIMIT:g} s", START_LIMIT)
            else:
                limit = worker.batch[0].limit
                self._end(worker, "timeout", f"took longer than {limit:g} s", limit)

    def _end(self, worker: _Worker, kind: _Kind, detail: str, seconds: float = 0.0) -> None:
        """End a worker for what became of the call it is at; its other calls go to others."""
        waiting = worker.take_back()
        self._workers.remove(worker)
        self._selector.unregister(worker.socket)
        worker.kill()
        *done, call = worker.batch or (None,)
        if call is None:
            if worker.constructing is not None and not worker.ready:
                self._deaths[worker.constructing] += 1
                if self._deaths[worker.constructing] > 1:  # once may have been an accident
                    self._broken[worker.constructing] = detail
            elif waiting or not worker.ready:
                self._false_starts, self._reason = self._false_starts + 1, detail
            self.submit(waiting, first=True)
            return
        worn = kind != "timeout" and worker.answered + len(done) > 0
        retry = self._repeatable and worn and not call.retried
        self.submit([*done, *([call] if retry else []), *waiting], first=True)
        if retry:
            call.retried = True  # it may not have been the one at fault
        else:
            call.done(None, Fault(kind, detail), seconds)
