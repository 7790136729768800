"""Unanswered requests, and the parts of them that wait for an actor.

A work item is a request, or one completion of it if the engine takes requests while it generates.
Until it is answered, it is either in the queue or with one actor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace

from rlvr_cluster.ray.messages import Answers
from rlvr_core.api import Generation, GenerationRequest, RlvrError, RunError


@dataclass(eq=False, slots=True)
class PendingRequest:
    """A submitted request and its answers so far, in the order of its seeds."""

    request: GenerationRequest
    future: Future[Answers]
    answers: list[Generation | None]


@dataclass(eq=False, slots=True)
class WorkItem:
    """A unit of work for one actor: neighbouring completions of one request.

    Attributes:
        pending: The request.
        first: Index of the first completion.
        n: Number of completions.
        lost: Number of actors that were lost while they had it.
    """

    pending: PendingRequest
    first: int
    n: int
    lost: int = 0

    @property
    def request(self) -> GenerationRequest:
        """The request for these completions alone."""
        whole = self.pending.request
        return replace(whole, seeds=whole.seeds[self.first : self.first + self.n])

    @property
    def wanted(self) -> bool:
        """False if the request was cancelled, or failed with another item of it."""
        return not self.pending.future.done()


class RequestQueue:
    """The unanswered requests of a pool. The pool's lock guards it.

    Args:
        split: Whether each completion is a work item by itself.

    Attributes:
        resent: Number of completions that went back to the queue.
    """

    def __init__(self, *, split: bool) -> None:
        self.resent = 0
        self._split = split
        self._submitted: list[PendingRequest] = []
        self._items: deque[WorkItem] = deque()
        self._unfinished: dict[int, PendingRequest] = {}
        self._outcomes: list[tuple[PendingRequest, RlvrError | None]] = []

    def __len__(self) -> int:
        """Return the number of unanswered requests."""
        return len(self._unfinished)

    @property
    def n_missing(self) -> int:
        """The number of missing completions."""
        return sum(pending.answers.count(None) for pending in self._unfinished.values())

    @property
    def submitted(self) -> bool:
        """Whether requests wait for ``begin``."""
        return bool(self._submitted)

    def submit(self, request: GenerationRequest) -> Future[Answers]:
        """Add a request for the next ``begin``."""
        pending = PendingRequest(request, Future(), [None] * len(request.seeds))
        self._unfinished[id(pending)] = pending
        self._submitted.append(pending)
        return pending.future

    def begin(self) -> None:
        """Queue the submitted requests."""
        for pending in self._submitted:
            n = len(pending.answers)
            size = 1 if self._split else n
            self._items += [WorkItem(pending, first, size) for first in range(0, n, size)]
        self._submitted = []

    def deal(self, loads: Sequence[int], most: int) -> list[list[WorkItem]]:
        """Take items from the queue, each for the least loaded actor.

        Args:
            loads: Number of completions that each actor has.
            most: Largest number for one actor; an idle actor gets an item of any size.

        Returns:
            The items of each actor.
        """
        loads = list(loads)
        dealt: list[list[WorkItem]] = [[] for _ in loads]
        while self._items and loads:
            least = min(range(len(loads)), key=loads.__getitem__)
            n = self._items[0].n
            if loads[least] and loads[least] + n > most:
                break
            item = self._items.popleft()
            if item.wanted:
                loads[least] += n
                dealt[least].append(item)
        return dealt

    def put_back(self, items: Iterable[WorkItem]) -> None:
        """Put unanswered items back at the head of the queue."""
        back = [item for item in items if item.wanted]
        self.resent += sum(item.n for item in back)
        self._items.extendleft(reversed(back))

    def answered(self, item: WorkItem, given: Answers, version: int, by: str) -> None:
        """Record an actor's completions.

        Raises:
            RunError: If their number or the version of their weights is wrong.
        """
        pending = item.pending
        if len(given) != item.n:
            what = f"gave {len(given)} completions for {item.n} seeds"
            raise RunError(f"request {pending.request.id}: {by} {what}")
        if other := [generation.version for generation in given if generation.version != version]:
            raise RunError(
                f"request {pending.request.id}: {by} sampled under version {other[0]}, and was to "
                f"hold {version}",
                remedy="an engine labels what it samples with the version of its last load_weights",
            )
        pending.answers[item.first : item.first + item.n] = given
        if None not in pending.answers:
            self._outcomes.append((pending, None))

    def failed(self, item: WorkItem, error: RlvrError) -> None:
        """Record the error that an engine raised for a request."""
        self._outcomes.append((item.pending, error))

    def fail_all(self, error: RlvrError) -> None:
        """Fail every request."""
        self._outcomes += [(pending, error) for pending in self._unfinished.values()]
        self._items.clear()
        self._submitted = []

    def clear(self) -> list[Future[Answers]]:
        """Forget every request, and return their futures."""
        futures = [pending.future for pending in self._unfinished.values()]
        self._unfinished, self._submitted, self._outcomes = {}, [], []
        self._items.clear()
        return futures

    def take_outcomes(self) -> list[tuple[PendingRequest, RlvrError | None]]:
        """Return and forget the requests that can be resolved, each with its error or None."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def finish(self, outcomes: Iterable[tuple[PendingRequest, RlvrError | None]]) -> None:
        """Forget requests whose futures are resolved."""
        for pending, _ in outcomes:
            self._unfinished.pop(id(pending), None)


def resolve(pending: PendingRequest, error: RlvrError | None) -> None:
    """Resolve a request's future; call without a lock, because its callbacks run here."""
    with suppress(InvalidStateError):  # cancelled, or another item of it failed before
        if error is None:
            pending.future.set_result(
                tuple(answer for answer in pending.answers if answer is not None)
            )
        else:
            pending.future.set_exception(error)
