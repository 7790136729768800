"""A pool of verifier processes that can be killed: no verdict can hold up or fell the others.

A worker judges one completion at a time and counts each as it is done; the clock of a verdict
starts when the worker begins it. Quick verdicts are reported together. The pool kills and replaces
a worker whose verdict passes its deadline and one that dies, and gives the rest of its work to
others.

Why not pebble or ``ProcessPoolExecutor``: the first stops all its workers for three seconds for
each one that must be killed while in C code, and gives up for good when a worker dies in the
wrong moment; the second never kills at all. Both re-import the trainer's main module in workers.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from types import TracebackType

from rlvr_core.api import Completion, GroupVerifier, Problem, RunError, Verdict, Verifier
from rlvr_core.workers.process import AHEAD_BYTES, START_LIMIT, Worker
from rlvr_core.workers.stats import Tally, VerifierStats
from rlvr_core.workers.worker import (
    OUT_OF_MEMORY,
    Setup,
    Task,
    VerifierSpec,
    describe_error,
    from_plain,
)

__all__ = ["VerifierPool", "VerifierSpec", "VerifierStats"]

BATCH_SECONDS = 0.02
"""Work sent to a worker at once, so that a verdict of microseconds does not cost a round trip."""
BATCH_TASKS = 64
RUNNING_OUT = 0.005
"""Work left to a worker below which it is sent the next batch, so that it need not wait for it."""
FALSE_STARTS = 3
"""Workers in a row that die before they are ready, after which the pool gives up."""

_Report = tuple[float, float, list[list[object]] | None, str]
"""When a call was finished, seconds it took, its verdicts or None, what went wrong."""


@dataclass(slots=True)
class _Sheet:
    """Collects the verdicts of one ``submit_group``."""

    names: tuple[str, ...]
    rows: list[dict[str, Verdict]]
    missing: int
    future: Future[list[dict[str, Verdict]]] = field(default_factory=Future)

    def fill(self, row: int, name: str, verdict: Verdict) -> None:
        self.rows[row][name] = verdict
        self.missing -= 1
        if self.missing == 0:
            self.future.set_result([{n: found[n] for n in self.names} for found in self.rows])


@dataclass(slots=True)
class _Item:
    """One call of a verifier and where its verdicts go."""

    task: Task
    sheet: _Sheet
    rows: tuple[int, ...]
    retried: bool = False
    trial: _Trial | None = None
    last: bool = False

    def singles(self) -> list[_Item]:
        """The same work, one completion at a time."""
        return [
            _Item(Task(self.task.name, self.task.problem, (completion,), False), self.sheet, (row,))
            for completion, row in zip(self.task.completions, self.rows, strict=True)
        ]

    def part(self, rows: Sequence[int]) -> _Item:
        """The same call on some of the completions."""
        taken = [
            one for one, row in zip(self.task.completions, self.rows, strict=True) if row in rows
        ]
        task = Task(self.task.name, self.task.problem, tuple(taken), True)
        return _Item(task, self.sheet, tuple(rows))


@dataclass(slots=True)
class _Trial:
    """Finds the completions that make a call of a ``GroupVerifier`` fail: each is tried alone.

    Attributes:
        item: The call that failed.
        fault: The verdict that stands for the failure.
        faults: The verdict on each completion that also fails alone, by row.
        left: Completions that are still to be tried.
    """

    item: _Item
    fault: Verdict
    left: int
    faults: dict[int, Verdict] = field(default_factory=dict)


class VerifierPool:
    """Judges completions in processes of its own. Every method may be called from any thread.

    Args:
        verifiers: How to construct each verifier, by the name verdicts go under.
        workers: Processes.
        timeout: Seconds one verdict may take, from its beginning, unless its verifier has a
            ``time_limit`` of its own. A call of ``verify_group`` may take that for each of its
            completions.
        memory_mb: MiB a worker may take beyond what it holds when idle.

    Raises:
        ImportError: If a verifier's module cannot be imported.
    """

    def __init__(
        self,
        verifiers: Mapping[str, VerifierSpec],
        *,
        workers: int,
        timeout: float,
        memory_mb: int,
    ) -> None:
        self._specs = dict(verifiers)
        classes = {name: spec.load() for name, spec in verifiers.items()}
        self._grouped = {name for name, cls in classes.items() if issubclass(cls, GroupVerifier)}
        # one that has no ``verify`` may compare: its verdict on one completion alone says nothing
        self._comparing = {n for n in self._grouped if not issubclass(classes[n], Verifier)}
        self._size = workers
        self._limits = {name: spec.time_limit(timeout) for name, spec in verifiers.items()}
        self._memory_mb = memory_mb
        self._tallies = {name: Tally() for name in verifiers}
        self._broken: dict[str, str] = {}
        self._false_starts = 0
        self._workers: list[Worker[_Item]] = []
        self._queue: deque[_Item] = deque()
        self._lock = threading.Lock()
        self._closing = False
        self._closed = False
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)
        # Workers die with the thread that started them, hence one thread that starts them all.
        self._thread = threading.Thread(target=self._run, name="verifier-pool", daemon=True)
        self._thread.start()

    # -- for callers ---------------------------------------------------------------------------

    def submit(self, problem: Problem, completion: Completion, verifier: str) -> Future[Verdict]:
        """Judge one completion with one verifier; a verifier's fault becomes its verdict."""
        single: Future[Verdict] = Future()
        single.set_running_or_notify_cancel()
        group = self.submit_group(problem, [completion], [verifier])
        group.add_done_callback(_forward(single, lambda rows: rows[0][verifier]))
        return single

    def submit_group(
        self, problem: Problem, completions: Sequence[Completion], verifiers: Sequence[str]
    ) -> Future[list[dict[str, Verdict]]]:
        """Judge the completions of one problem with each of these verifiers.

        Returns:
            A future of one mapping a completion, in order, from verifier name to verdict.

        Raises:
            KeyError: If a verifier is not one of the pool's.
            RunError: If the pool is closed.
        """
        names = tuple(dict.fromkeys(verifiers))
        sheet = _Sheet(names, [{} for _ in completions], len(names) * len(completions))
        sheet.future.set_running_or_notify_cancel()
        if sheet.missing == 0:
            sheet.future.set_result(sheet.rows)
            return sheet.future
        task_problem = pickle.dumps(problem, pickle.HIGHEST_PROTOCOL)
        answers = tuple(pickle.dumps(c, pickle.HIGHEST_PROTOCOL) for c in completions)
        rows = tuple(range(len(completions)))
        items: list[_Item] = []
        for name in names:
            if name not in self._specs:
                raise KeyError(f"the pool has no verifier {name!r}")
            whole = _Item(Task(name, task_problem, answers, True), sheet, rows)
            together = name in self._comparing or (name in self._grouped and len(completions) > 1)
            items.extend([whole] if together else whole.singles())
        with self._lock:
            if self._closing:
                raise RunError("the verifier pool is closed")
            self._queue.extend(items)
        self._ring()
        return sheet.future

    def stats(self) -> dict[str, VerifierStats]:
        """Counts and latencies so far, by verifier."""
        with self._lock:
            return {name: tally.stats() for name, tally in self._tallies.items()}

    def pids(self) -> list[int]:
        """Process ids of the workers alive now."""
        return [worker.pid for worker in list(self._workers)]

    def close(self) -> None:
        """Kill the workers; verdicts still awaited become errors. Safe to call twice."""
        with self._lock:
            self._closing = True
        self._ring()
        self._thread.join()

    def __enter__(self) -> VerifierPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- the pool's own thread -----------------------------------------------------------------

    def _ring(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):  # it is ringing already
            if not self._closed:
                os.write(self._wake_w, b"!")

    def _run(self) -> None:
        try:
            while not self._closing:
                self._spawn()
                self._assign()
                self._listen()
                self._expire()
        except BaseException as error:
            with self._lock:
                self._closing = True
            self._abandon(f"the verifier pool failed: {describe_error(error)}")
            raise
        finally:
            for worker in self._workers:
                worker.kill()
            self._abandon("the verifier pool was closed")
            self._workers.clear()
            with self._lock:
                self._closed = True
                os.close(self._wake_r)
                os.close(self._wake_w)

    def _spawn(self) -> None:
        while len(self._workers) < self._size and self._false_starts < FALSE_STARTS:
            specs = {n: spec for n, spec in self._specs.items() if n not in self._broken}
            self._workers.append(Worker(Setup(specs, self._memory_mb)))

    def _assign(self) -> None:
        if self._false_starts >= FALSE_STARTS:
            reason = "verifier workers do not start"
            for item in self._take(None):
                self._fail(item, self._broken.get(item.task.name, reason))
            return
        free = sorted(filter(self._runs_out, self._workers), key=lambda worker: len(worker.batch))
        for left, worker in zip(range(len(free), 0, -1), free, strict=True):
            batch = []
            for item in self._take(left, ahead=bool(worker.batch)):
                if item.task.name in self._broken:
                    self._fail(item, self._broken[item.task.name])
                else:
                    batch.append(item)
            if batch and not worker.send([item.task for item in batch], batch):
                self._return(batch)  # its end of file comes next

    def _runs_out(self, worker: Worker[_Item]) -> bool:
        """Whether a worker should have more to do."""
        if not worker.ready or worker.unopened or len(worker.batch) > BATCH_TASKS // 2:
            return False
        return sum(map(self._expected, worker.batch)) < RUNNING_OUT

    def _expected(self, item: _Item) -> float:
        """Seconds an item may take."""
        mean = self._tallies[item.task.name].mean
        return BATCH_SECONDS if mean is None else mean * len(item.rows)

    def _take(self, sharers: int | None, *, ahead: bool = False) -> list[_Item]:
        """The next items for one of so many free workers; None takes everything.

        Args:
            sharers: Free workers.
            ahead: Whether the worker is still busy.
        """
        taken: list[_Item] = []
        with self._lock:
            if sharers is None:
                taken, self._queue = list(self._queue), deque()
                return taken
            most = min(BATCH_TASKS, -(-len(self._queue) // sharers))
            seconds, room = 0.0, AHEAD_BYTES if ahead else float("inf")
            while self._queue and len(taken) < most:
                seconds += self._expected(self._queue[0])
                room -= self._queue[0].task.size
                if room < 0 or (taken and seconds > BATCH_SECONDS):
                    break
                taken.append(self._queue.popleft())
        return taken

    def _return(self, items: Iterable[_Item]) -> None:
        with self._lock:
            self._queue.extendleft(reversed(list(items)))
        self._ring()  # so that the loop comes round to assigning them

    def _listen(self) -> None:
        deadlines = [worker.deadline for worker in self._workers if worker.deadline is not None]
        patience = max(min(deadlines) - time.monotonic(), 0.0) if deadlines else None
        if patience is not None:
            patience = min(patience, 1.0)  # look for silently dead workers now and then
        by_connection = {worker.connection: worker for worker in self._workers}
        for source in wait([self._wake_r, *by_connection], patience):
            if source == self._wake_r:
                _drain(self._wake_r)
            else:
                self._hear(by_connection[source])  # type: ignore[index]

    def _hear(self, worker: Worker[_Item]) -> None:
        """Take in every message that is there."""
        for line in worker.read():
            if worker not in self._workers:
                return
            try:
                kind, *message = json.loads(line)
            except ValueError:
                self._died(worker)
            else:
                self._understand(worker, kind, *message)
        if worker.hung_up and worker in self._workers:
            self._died(worker)

    def _understand(self, worker: Worker[_Item], kind: str, *message: object) -> None:
        if kind == "done":
            self._done(worker, *message)  # type: ignore[arg-type]
        elif kind == "start":
            worker.unopened -= 1
            worker.begin(float(message[0]), self._limit(worker))  # type: ignore[arg-type]
        elif kind == "constructing":
            worker.constructing = str(message[0])
            worker.deadline = time.monotonic() + START_LIMIT
        elif kind == "ready":
            self._broken.update(message[0])  # type: ignore[call-overload]
            self._false_starts = 0
            worker.ready, worker.deadline = True, None
        else:
            raise ValueError(kind)

    def _done(self, worker: Worker[_Item], reports: list[_Report]) -> None:
        for now, seconds, plain, fault in reports:
            item = worker.batch.popleft()
            worker.judged += 1
            if plain is not None and item.trial is not None:
                self._tried(item.trial)
            elif plain is not None:
                for row, verdict in zip(item.rows, plain, strict=True):
                    self._settle(item, row, from_plain(verdict), seconds / len(item.rows))
            elif fault == OUT_OF_MEMORY and worker.judged > 1 and not item.retried:
                item.retried = True  # others may have filled the memory
                self._return([item])
            else:
                self._fail(item, fault, seconds)
            worker.deadline = None
            if worker.batch:
                worker.begin(now, self._limit(worker))
            if fault == OUT_OF_MEMORY:
                self._return(worker.batch)
                self._bury(worker)

    def _died(self, worker: Worker[_Item]) -> None:
        reason = worker.cause_of_death()
        if not worker.ready:
            self._false_start(worker, reason)
        elif worker.batch:
            item, rest = worker.take_current()
            if worker.progress.read() > 0 and not item.retried:
                item.retried = True  # it may not have been the one at fault
                self._return([item, *rest])
            else:
                self._return(rest)
                self._fail(item, f"worker died: {reason}")
        self._bury(worker)

    def _false_start(self, worker: Worker[_Item], reason: str) -> None:
        if worker.constructing is not None:
            self._broken[worker.constructing] = f"cannot be constructed: {reason}"
        else:
            self._false_starts += 1

    def _expire(self) -> None:
        now = time.monotonic()
        for worker in list(self._workers):
            if worker.deadline is None or now < worker.deadline:
                if worker.is_dead() and not worker.connection.poll():
                    self._died(worker)
                continue
            if worker.connection.poll():
                continue  # it did report in time; this process was late to listen
            if not worker.ready:
                self._false_start(worker, f"not done after {START_LIMIT:g} s")
            else:
                item, rest = worker.take_current()
                self._return(rest)
                limit = self._limit_of(item)
                timeout = Verdict(None, "timeout", detail=f"took longer than {limit:g} s")
                self._conclude(item, timeout, limit)
            self._bury(worker)

    def _limit(self, worker: Worker[_Item]) -> float:
        """Seconds for what the worker does now."""
        return self._limit_of(worker.batch[0])

    def _limit_of(self, item: _Item) -> float:
        """Seconds a call may take: those of a verdict, for each of its completions."""
        return self._limits[item.task.name] * len(item.rows)

    def _bury(self, worker: Worker[_Item]) -> None:
        self._workers.remove(worker)
        worker.kill()

    # -- verdicts ------------------------------------------------------------------------------

    def _fail(self, item: _Item, detail: str, seconds: float = 0.0) -> None:
        self._conclude(item, Verdict(None, "error", detail=detail), seconds)

    def _conclude(self, item: _Item, verdict: Verdict, seconds: float) -> None:
        """End an item that went wrong; one of several completions is tried one by one."""
        if item.trial is not None:
            self._tried(item.trial, item.rows[0], verdict)
        elif not item.task.grouped or item.task.name in self._broken:
            self._settle_all(item, verdict, seconds)
        elif item.task.name not in self._comparing:
            self._return(item.singles())
        elif item.last or len(item.rows) == 1:
            self._settle_all(item, verdict, seconds)
        else:
            trial = _Trial(item, verdict, len(item.rows))
            parts = [item.part([row]) for row in item.rows]
            for part in parts:
                part.trial = trial
            self._return(parts)

    def _tried(self, trial: _Trial, row: int = 0, fault: Verdict | None = None) -> None:
        """Take in what became of one completion; after the last, judge the sound ones together."""
        trial.left -= 1
        if fault is not None:
            trial.faults[row] = fault
        if trial.left:
            return
        item = trial.item
        sound = [row for row in item.rows if row not in trial.faults]
        if not sound or not trial.faults:  # what fails is the call, and no single completion
            self._settle_all(item, trial.fault, 0.0)
            return
        for row, verdict in trial.faults.items():
            self._settle(item, row, verdict, 0.0)
        rest = item.part(sound)
        rest.last = True
        self._return([rest])

    def _settle_all(self, item: _Item, verdict: Verdict, seconds: float) -> None:
        for row in item.rows:
            self._settle(item, row, verdict, seconds)

    def _settle(self, item: _Item, row: int, verdict: Verdict, seconds: float) -> None:
        with self._lock:
            self._tallies[item.task.name].add(verdict, seconds)
        item.sheet.fill(row, item.task.name, verdict)

    def _abandon(self, reason: str) -> None:
        items = [*itertools.chain(*(worker.batch for worker in self._workers)), *self._take(None)]
        for worker in self._workers:
            worker.batch.clear()
        verdict = Verdict(None, "error", detail=reason)
        for trial in {id(one.trial): one.trial for one in items if one.trial}.values():
            self._settle_all(trial.item, verdict, 0.0)
        for item in items:
            if item.trial is None:
                self._settle_all(item, verdict, 0.0)


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        return


def _forward(
    target: Future[Verdict], pick: Callable[[list[dict[str, Verdict]]], Verdict]
) -> Callable[[Future[list[dict[str, Verdict]]]], None]:
    def done(source: Future[list[dict[str, Verdict]]]) -> None:
        target.set_result(pick(source.result()))

    return done
