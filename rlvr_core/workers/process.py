"""The pool's side of one worker process: what it has been given, and how long it may take."""

from __future__ import annotations

import time
from collections import deque
from typing import Generic, TypeVar

from rlvr_core.workers.child import Child
from rlvr_core.workers.worker import REPORT_EVERY, Progress, Setup, Task

START_LIMIT = 120.0
"""Seconds a worker has to start, to construct each verifier, and to take in a batch."""

AHEAD_BYTES = 2**16
"""Most that is sent to a worker before it is done with the last batch: it always fits in the
socket's buffer, so that sending never waits for a worker that hangs."""

Item = TypeVar("Item")


class Worker(Child, Generic[Item]):
    """One worker process.

    Attributes:
        progress: How far it is, told without a message.
        batch: What it has been sent and has not answered, in order.
        deadline: ``time.monotonic()`` after which it is killed; None when it owes nothing.
        unopened: Batches it has been sent and has not begun.
        ready: Whether its verifiers are constructed.
        constructing: The verifier it constructs, until it is ready.
        judged: Calls it has reported.
    """

    def __init__(self, setup: Setup) -> None:
        self.progress, file = Progress.create()
        with file:
            super().__init__("rlvr_core.workers.worker", [file.fileno()], setup)
        self.batch: deque[Item] = deque()
        self.deadline: float | None = time.monotonic() + START_LIMIT
        self.unopened = 0
        self.ready = False
        self.constructing: str | None = None
        self.judged = 0

    def send(self, tasks: list[Task], items: list[Item]) -> bool:
        """Give it work. False if it is gone."""
        if not self.write(tasks):
            return False
        if not self.batch:
            self.deadline = time.monotonic() + START_LIMIT
        self.batch.extend(items)
        self.unopened += 1
        return True

    def begin(self, now: float, limit: float) -> None:
        """It has begun a call, or one of the next that it reports with it, at ``now``."""
        self.deadline = now + limit + REPORT_EVERY

    def take_current(self) -> tuple[Item, list[Item]]:
        """What it is at, out of its batch, and the rest: some of that finished but not reported."""
        rest = list(self.batch)
        self.batch.clear()
        current = rest.pop(min(max(self.progress.read() - self.judged, 0), len(rest) - 1))
        return current, rest
