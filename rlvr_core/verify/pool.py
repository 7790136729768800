"""Judges completions in processes that can be killed, using the pool of ``workers/``.

A call judges one completion; a few, if the verifier has been fast and has never failed; or a whole
group, if the verifier judges groups. If a call with several fails, its completions are judged one
at a time. If the verifier can only compare completions, each is tried alone, and those that do not
fail are judged together once more.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from typing import Any

from rlvr_core.api import Completion, GroupVerifier, Json, Problem, Verdict, Verifier
from rlvr_core.record.text import Redactor
from rlvr_core.verify.verdicts import ALONE, TOGETHER, VerifierSpec, from_plain, judge, pack
from rlvr_core.workers.pool import Fault, PoolCall, ProcessPool

__all__ = ["VerifierPool", "VerifierSpec", "VerifierStats"]

RECENT = 10_000
"""Number of most recent verdicts that the percentiles cover."""

BUSY_TRIES = 4
"""Times that a completion is judged before a verdict ``busy`` counts."""

AT_ONCE = 8
"""Completions in a call of a verifier that takes less than a millisecond for each."""

_FINAL = ("construct", "start", "closed")
"""Faults that a call with fewer completions would meet too."""


@dataclass(frozen=True, slots=True)
class VerifierStats:
    """Statistics of one verifier so far.

    Attributes:
        calls: Number of verdicts.
        seconds: Time spent in the workers.
        p50: Median seconds per verdict, over the most recent ones.
        p99: 99th percentile of the same seconds.
        unscorable: Verdicts with status ``unscorable``.
        timeouts: Verdicts that passed their deadline, or found the machine busy to the last.
        errors: Verdicts that failed.
    """

    calls: int
    seconds: float
    p50: float
    p99: float
    unscorable: int
    timeouts: int
    errors: int


@dataclass(slots=True)
class Tally:
    """Accumulates ``VerifierStats``."""

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, verdict: Verdict, seconds: float) -> None:
        """Count one verdict that took ``seconds``."""
        self.statuses["timeout" if verdict.status == "busy" else verdict.status] += 1
        self.seconds += seconds
        self.recent.append(seconds)

    def at_once(self) -> int:
        """Return how many completions to judge in one call; after a failure, one."""
        calls = self.statuses.total()
        sound = calls == self.statuses["ok"] + self.statuses["unscorable"]
        return AT_ONCE if sound and calls >= 50 and self.seconds < calls / 1000 else 1

    def stats(self) -> VerifierStats:
        """Return the current statistics."""
        ordered = sorted(self.recent)
        latencies = percentile(ordered, 0.50), percentile(ordered, 0.99)
        failed = [self.statuses[status] for status in ("unscorable", "timeout", "error")]
        return VerifierStats(self.statuses.total(), self.seconds, *latencies, *failed)


def percentile(ordered: list[float], share: float) -> float:
    """Return the smallest value that ``share`` of the values do not exceed; 0.0 if empty."""
    if not ordered:
        return 0.0
    return ordered[max(ceil(len(ordered) * share), 1) - 1]


@dataclass(slots=True)
class _GroupResult:
    """Collects the verdicts of one ``submit_group``."""

    names: tuple[str, ...]
    rows: list[dict[str, Verdict]]
    missing: int
    future: Future[list[dict[str, Verdict]]] = field(default_factory=Future)

    def fill(self, row: int, name: str, verdict: Verdict) -> None:
        self.rows[row][name] = verdict
        self.missing -= 1
        if self.missing == 0:
            self.future.set_result([{n: row[n] for n in self.names} for row in self.rows])


@dataclass(slots=True)
class _Item:
    """One call of a verifier, and where its verdicts go.

    Attributes:
        name: Name of the verifier.
        problem: The packed problem.
        completions: The packed completions.
        rows: Their rows in the result.
        result: The result that collects the verdicts.
        grouped: Whether to call ``verify_group`` once for all of them.
        note: Text to add to the details of the verdicts.
        trial: The trial it belongs to.
        last: Whether it judges the completions that passed a trial.
        tries: How often it was judged with the verdict ``busy``.
    """

    name: str
    problem: bytes
    completions: tuple[bytes, ...]
    rows: Sequence[int]
    result: _GroupResult
    grouped: bool
    note: str = ""
    trial: _Trial | None = None
    last: bool = False
    tries: int = 1

    def part(self, rows: Sequence[int], **changes: Any) -> _Item:
        """Return the same call for some of the completions."""
        taken = tuple(self.completions[self.rows.index(row)] for row in rows)
        return replace(self, completions=taken, rows=tuple(rows), **changes)

    def singles(self, note: str = "") -> list[_Item]:
        """Split the call into one per completion."""
        return [self.part([row], grouped=False, note=note) for row in self.rows]


@dataclass(slots=True)
class _Trial:
    """Finds the completions that make a ``GroupVerifier`` call fail, by trying each alone.

    Attributes:
        item: The call that failed.
        fault: The verdict that describes the failure.
        left: Completions still to be tried.
        faults: The verdict on each completion that fails alone too, by row.
    """

    item: _Item
    fault: Verdict
    left: int
    faults: dict[int, Verdict] = field(default_factory=dict)


class VerifierPool:
    """Judges completions in worker processes. All methods may be called from any thread.

    Args:
        verifiers: How to construct each verifier, by the name verdicts go under.
        workers: Number of processes.
        timeout: Seconds one verdict may take after it has begun, unless its verifier has a
            ``time_limit``. A call of ``verify_group`` may take this long for each of its
            completions.
        memory_mb: MiB a worker may take beyond what it holds when idle.

    Raises:
        ImportError: If a verifier's module cannot be imported.
    """

    def __init__(
        self, verifiers: Mapping[str, VerifierSpec], *, workers: int, timeout: float, memory_mb: int
    ) -> None:
        classes = {name: spec.load() for name, spec in verifiers.items()}
        self._grouped = {name for name, cls in classes.items() if issubclass(cls, GroupVerifier)}
        # a verifier without ``verify`` compares completions: a verdict on one alone is meaningless
        self._comparing = {n for n in self._grouped if not issubclass(classes[n], Verifier)}
        self._limits = {name: spec.time_limit(timeout) for name, spec in verifiers.items()}
        self._redactor = Redactor()  # one: to read the environment takes longer than to search
        self._tallies = {name: Tally() for name in verifiers}
        self._lock = threading.Lock()
        handler = f"{judge.__module__}:{judge.__name__}"
        self._pool = ProcessPool(
            "verifier pool", verifiers, handler, workers, memory_mb=memory_mb, repeatable=True
        )

    def submit_group(
        self, problem: Problem, completions: Sequence[Completion], verifiers: Sequence[str]
    ) -> Future[list[dict[str, Verdict]]]:
        """Judge the completions of one problem with each of the verifiers.

        Returns:
            A future of a list with one mapping from verifier name to verdict per completion, in
            order.

        Raises:
            KeyError: If a verifier is not one of the pool's.
            RunError: If the pool is closed.
        """
        names = tuple(dict.fromkeys(verifiers))
        result = _GroupResult(names, [{} for _ in completions], len(names) * len(completions))
        result.future.set_running_or_notify_cancel()
        if result.missing == 0:
            result.future.set_result(result.rows)
            return result.future
        packed, answers, rows = (
            pack(problem),
            tuple(map(pack, completions)),
            range(len(completions)),
        )
        items: list[_Item] = []
        for name in names:
            if name not in self._limits:
                raise KeyError(f"the pool has no verifier {name!r}")
            together = name in self._comparing or (name in self._grouped and len(completions) > 1)
            with self._lock:
                size = len(answers) if together else self._tallies[name].at_once()
            for at in range(0, len(answers), size):
                some = slice(at, at + size)
                items.append(_Item(name, packed, answers[some], rows[some], result, together))
        self._pool.submit(map(self._call, items))
        return result.future

    def stats(self) -> dict[str, VerifierStats]:
        """Return counts and latencies so far, by verifier."""
        with self._lock:
            return {name: tally.stats() for name, tally in self._tallies.items()}

    def pids(self) -> list[int]:
        """Process ids of the living workers."""
        return self._pool.pids()

    def close(self) -> None:
        """Kill the workers; pending verdicts become errors. Safe to call twice."""
        self._pool.close()

    def __enter__(self) -> VerifierPool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _call(self, item: _Item) -> PoolCall:
        payload = (TOGETHER if item.grouped else ALONE, item.problem, *item.completions)
        limit = self._limits[item.name] * (len(item.rows) if item.grouped else 1)
        return PoolCall(item.name, payload, limit, partial(self._answered, item))

    # -- in the pool's thread ------------------------------------------------------------------

    def _answered(self, item: _Item, answer: Json, fault: Fault | None, seconds: float) -> None:
        if fault is not None:
            self._conclude(item, _fault_verdict(fault), seconds, again=fault.kind not in _FINAL)
        elif item.trial is not None:
            self._tried(item.trial)
        else:
            for row, verdict in zip(item.rows, map(from_plain, answer), strict=True):
                if verdict.status == "busy" and item.tries < BUSY_TRIES and not item.grouped:
                    self._pool.submit([self._call(item.part([row], tries=item.tries + 1))])
                else:
                    self._settle(item, row, verdict, seconds / len(item.rows))

    def _conclude(self, item: _Item, verdict: Verdict, seconds: float, *, again: bool) -> None:
        """Finish a failed item; one of several completions is retried one by one."""
        if item.trial is not None:
            self._tried(item.trial, item.rows[0], verdict)
        elif not again or len(item.rows) == 1 or item.last:
            self._settle_all(item, verdict, seconds)
        elif item.name not in self._comparing:
            note = f"judged alone, since verify_group failed: {verdict.detail}"
            singles = item.singles(note if item.grouped else "")
            self._pool.submit(map(self._call, singles), first=True)
        else:
            trial = _Trial(item, verdict, len(item.rows))
            parts = [item.part([row], trial=trial) for row in item.rows]
            self._pool.submit(map(self._call, parts), first=True)

    def _tried(self, trial: _Trial, row: int = 0, fault: Verdict | None = None) -> None:
        """Record the trial of one completion; after the last, judge the sound ones together."""
        trial.left -= 1
        if fault is not None:
            trial.faults[row] = fault
        if trial.left:
            return
        item = trial.item
        sound = [row for row in item.rows if row not in trial.faults]
        if not sound or not trial.faults:  # not caused by any single completion
            self._settle_all(item, trial.fault, 0.0)
            return
        for row, verdict in trial.faults.items():
            self._settle(item, row, verdict, 0.0)
        self._pool.submit([self._call(item.part(sound, last=True))], first=True)

    def _settle_all(self, item: _Item, verdict: Verdict, seconds: float) -> None:
        for row in item.rows:
            self._settle(item, row, verdict, seconds)

    def _settle(self, item: _Item, row: int, verdict: Verdict, seconds: float) -> None:
        if item.note:
            verdict = replace(verdict, detail=f"{verdict.detail}; {item.note}".removeprefix("; "))
        if verdict.detail:  # it may quote a request, and is kept in records and checkpoints
            verdict = replace(verdict, detail=self._redactor.known(verdict.detail))
        with self._lock:
            self._tallies[item.name].add(verdict, seconds)
        item.result.fill(row, item.name, verdict)


def _fault_verdict(fault: Fault) -> Verdict:
    what = {"died": "worker died: ", "construct": "cannot be constructed: "}.get(fault.kind, "")
    detail = "verifier workers do not start" if fault.kind == "start" else what + fault.detail
    return Verdict(None, "timeout" if fault.kind == "timeout" else "error", detail=detail)
