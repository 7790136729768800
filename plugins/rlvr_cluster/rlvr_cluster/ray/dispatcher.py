"""A thread that handles the actors' answers and losses, and gives them work.

The unanswered work of a lost actor goes back to the head of the queue with its seeds, so nothing is
lost and nothing is counted twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty

from rlvr_cluster.ray.actors import Actors, Call
from rlvr_cluster.ray.messages import Reply, SentWeights
from rlvr_cluster.ray.requests import RequestQueue, resolve
from rlvr_core.api import Generation, RlvrError, RunError

POLL = 0.5
"""Seconds between checks of the deadlines while nothing happens."""


class Dispatcher:
    """The thread between a request queue and the actors.

    Args:
        actors: The actors.
        requests: The requests to answer.
        check: See ``ActorPool``.
        max_in_flight: Largest number of completions requested from one actor at a time.
        interleave: Whether an actor gets more work while it generates.

    Attributes:
        state: Guards the actors, the requests and the attributes below; notified of changes.
        weights: The weights that the actors must hold; None for those of the model's files.
        paused: Whether nothing is dispatched and new actors wait for their weights.
        broken: The error that stops the actors.
    """

    def __init__(
        self,
        actors: Actors,
        requests: RequestQueue,
        check: Callable[[SentWeights, str, Generation], None],
        *,
        max_in_flight: int,
        interleave: bool,
    ) -> None:
        self._actors, self._requests, self._check = actors, requests, check
        self._max_in_flight, self._interleave = max_in_flight, interleave
        self.state = threading.Condition()
        self.weights: SentWeights | None = None
        self.paused = False
        self.broken: RlvrError | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="ray-actors", daemon=True)

    def start(self) -> None:
        """Start the thread, which starts the actors."""
        self._thread.start()

    def fail(self, error: RlvrError) -> None:
        """Fail every request, now and in future."""
        with self.state:
            self.broken = self.broken or error
            self._requests.fail_all(self.broken)
            self.state.notify_all()
        self._actors.ended.put(None)

    def close(self, timeout: float) -> None:
        """End the thread; unfinished requests fail."""
        self._closing = True
        self.fail(RunError("the engine was closed before the request was finished"))
        if self._thread.is_alive():
            self._thread.join(timeout)

    # -- under the lock --------------------------------------------------------------------------

    def raise_broken(self) -> None:
        """Raise the error given to ``fail``, if any."""
        if self.broken is not None:
            raise self.broken

    def go_on(self) -> None:
        """Start due actors, give weights to those that wait for them, and dispatch."""
        if self.broken is not None:
            return
        self._actors.start_due()
        for slot in self._actors.slots:
            if slot.state != "started":
                continue
            if self.weights is None:
                slot.state = "ready"
            elif not self.paused:
                self._actors.load(slot, self.weights)
        self._actors.check_present(wanted=bool(self._requests))
        self.dispatch()
        self.state.notify_all()

    def dispatch(self) -> None:
        """Hand queued work to the least loaded actors.

        An engine that takes no requests while it generates gets its next ones when it has finished
        the earlier ones, so that its batches do not depend on timing.
        """
        if self.paused or self.broken is not None:
            return
        free = [slot for slot in self._actors.ready if self._interleave or not slot.items]
        dealt = self._requests.deal([slot.load for slot in free], self._max_in_flight)
        for slot, items in zip(free, dealt, strict=True):
            if items:
                self._actors.give(slot, items)

    # -- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            try:
                call = self._actors.ended.get(timeout=POLL)
            except Empty:
                call = None
            try:
                with self.state:
                    if call is not None and not self._closing:
                        self._handle(call)
                    self.go_on()
            except RlvrError as error:
                self.fail(error)
            except Exception as error:
                self.fail(RunError(f"engine ray failed: {type(error).__name__}: {error}"))
            self._resolve()
        self._resolve()

    def _resolve(self) -> None:
        with self.state:
            outcomes = self._requests.take_outcomes()
        for pending, error in outcomes:  # without the lock, because callbacks may submit more
            resolve(pending, error)
        if outcomes:
            with self.state:
                self._requests.finish(outcomes)
                self.state.notify_all()

    def _handle(self, call: Call) -> None:
        """Act on an actor's answer or loss."""
        slot = call.slot
        if call.number != slot.number or slot.state == "absent":
            return  # from an actor that was already lost
        if (error := call.result.exception()) is not None:
            self._requests.put_back(self._actors.lost(slot, error))
            return
        reply = call.result.result()
        match call.method:
            case "start" if reply.kind == "done":
                self._actors.joined(slot, reply.value)
            case "start" if self._actors.up:  # it lives, but cannot be used
                self._actors.lost(slot, reply.value)
            case "load_weights" if reply.kind == "done":
                assert self.weights is not None
                self._check(self.weights, slot.name, reply.value)
                slot.state = "ready"
            case "start" | "load_weights":
                raise reply.value
            case "answer":
                self._answered(call, reply)

    def _answered(self, call: Call, reply: Reply) -> None:
        slot = call.slot
        item = slot.items.pop(call.ticket, None)
        if item is None or not item.wanted:
            return
        match reply.kind:
            case "done":
                slot.deaths = 0
                version = 0 if self.weights is None else self.weights.version
                self._requests.answered(item, reply.value, version, slot.name)
            case "failed":
                self._requests.failed(item, reply.value)
            case "cancelled":
                self._requests.put_back([item])
