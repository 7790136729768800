"""Queues of problems by age: drawing or moving one of N takes O(log N)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Queue = TypeVar("Queue", bound=Hashable)

_SPARE = 64
"""Outdated entries that a queue may always hold, beyond as many as it has problems."""


class AgeQueues(Generic[Queue]):
    """Ids in queues, each with the least recently drawn first.

    An id that is drawn is set aside until ``put_back``. A queue is a heap in which entries of ids
    that were drawn or moved since stay, and are passed over: an entry counts if its age is that of
    its id, and its id still belongs to the queue.

    Args:
        queue_of: The queue of each id.
        last: Index of each id's last draw; -1 for one that is not there.
        ranks: Breaks ties among ids of one age.

    Attributes:
        sizes: Number of ids of each queue, those set aside too.
    """

    def __init__(
        self, queue_of: Mapping[str, Queue], last: Mapping[str, int], ranks: Mapping[str, int]
    ) -> None:
        self._queue_of, self._ranks = dict(queue_of), ranks
        self._last = {id_: last.get(id_, -1) for id_ in queue_of}
        self._aside: set[str] = set()
        self._heaps: dict[Queue, list[tuple[int, int, str]]] = {}
        for id_, queue in self._queue_of.items():
            self._heaps.setdefault(queue, []).append(self._entry(id_))
        for heap in self._heaps.values():
            heapify(heap)
        self.sizes = Counter(self._queue_of.values())
        self._here = self.sizes.copy()

    def __contains__(self, id_: str) -> bool:
        return id_ in self._queue_of

    def ready(self) -> set[Queue]:
        """Return the queues that have an id which is not set aside."""
        return {queue for queue, count in self._here.items() if count > 0}

    def draw(self, queue: Queue, index: int) -> str:
        """Take the least recently drawn id of a queue, now drawn at ``index``, and set it aside."""
        heap = self._heaps[queue]
        while not self._counts(heap[0], queue):
            heappop(heap)
        id_ = heappop(heap)[2]
        self._last[id_] = index
        self._aside.add(id_)
        self._here[queue] -= 1
        return id_

    def put_back(self) -> None:
        """Put everything that was set aside into its queue again."""
        aside, self._aside = self._aside, set()
        for id_ in aside:
            self._push(id_)

    def move(self, id_: str, queue: Queue) -> None:
        """Move an id to a queue, where it keeps its age."""
        before = self._queue_of[id_]
        if before == queue:
            return
        self._queue_of[id_] = queue
        self.sizes[before] -= 1
        self.sizes[queue] += 1
        if id_ not in self._aside:
            self._here[before] -= 1
            self._push(id_)

    def _entry(self, id_: str) -> tuple[int, int, str]:
        return self._last[id_], self._ranks[id_], id_

    def _counts(self, entry: tuple[int, int, str], queue: Queue) -> bool:
        id_ = entry[2]
        return (
            self._queue_of[id_] == queue and self._last[id_] == entry[0] and id_ not in self._aside
        )

    def _push(self, id_: str) -> None:
        queue = self._queue_of[id_]
        self._here[queue] += 1
        heap = self._heaps.setdefault(queue, [])
        heappush(heap, self._entry(id_))
        if len(heap) > 2 * self.sizes[queue] + _SPARE:  # mostly outdated: amortised over pushes
            heap[:] = sorted({entry for entry in heap if self._counts(entry, queue)})
