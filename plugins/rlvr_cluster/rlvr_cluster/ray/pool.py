"""Spreads the requests of a run over its actors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from rlvr_cluster.ray.actors import Actors
from rlvr_cluster.ray.cluster import resources
from rlvr_cluster.ray.dispatcher import POLL, Dispatcher
from rlvr_cluster.ray.messages import Answers, Reply, SentWeights
from rlvr_cluster.ray.requests import RequestQueue
from rlvr_cluster.ray.slots import Limits, Slot
from rlvr_core.api import Generation, GenerationRequest, RlvrError, RunError

_CLOSE_TIMEOUT = 5.0


class ActorPool:
    """The actors of one process of a run. Methods may be called from any thread.

    Args:
        slots: The slots of the actors.
        limits: Deadlines and numbers.
        args: Reference to the ``ActorArgs``.
        split: Whether the engine takes requests while it generates; each completion is then
            requested by itself.
        check: Called in the dispatcher's thread with the sent weights, an actor's name and its
            answer to the probe; raises ``RlvrError`` if the actor holds other weights.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        limits: Limits,
        args: Any,
        *,
        split: bool,
        check: Callable[[SentWeights, str, Generation], None],
    ) -> None:
        self.slots = list(slots)
        self._deadline = limits.deadline
        self._actors = Actors(self.slots, limits, args)
        self._requests = RequestQueue(split=split)
        self._dispatcher = Dispatcher(
            self._actors,
            self._requests,
            check,
            max_in_flight=limits.max_in_flight,
            interleave=split,
        )
        self._state = self._dispatcher.state  # guards the actors and the requests
        self._closed = False

    def start(self, weights: SentWeights | None) -> None:
        """Start the actors, and return when all are ready.

        Raises:
            RlvrError: If one does not start.
        """
        self._dispatcher.weights = weights
        self._dispatcher.start()
        self._wait_until(
            lambda: all(slot.state == "ready" for slot in self.slots),
            lambda: (
                f"{sum(slot.state != 'ready' for slot in self.slots)} of {len(self.slots)} rollout "
                f"actors did not start; the cluster has {resources()}"
            ),
        )
        with self._state:
            self._actors.up = True

    def submit(self, request: GenerationRequest) -> Future[Answers]:
        """Queue a request for the next ``begin``; its future is resolved by the pool's thread."""
        if not request.seeds:
            nothing: Future[Answers] = Future()
            nothing.set_result(())
            return nothing
        with self._state:
            self._dispatcher.raise_broken()
            return self._requests.submit(request)

    def begin(self) -> None:
        """Send the submitted requests."""
        with self._state:
            self._requests.begin()
            self._dispatcher.dispatch()

    def wait(self, timeout: float | None) -> None:
        """Send submitted requests, new ones too, and return when all are answered.

        Raises:
            RunError: If that took longer than ``timeout`` seconds.
            RlvrError: If the actors cannot continue.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self.begin()
            with self._state:
                self._dispatcher.raise_broken()
                if not self._requests:
                    return
                left = POLL if until is None else until - time.monotonic()
                if left <= 0:
                    break
                if not self._requests.submitted:
                    self._state.wait(min(left, POLL))
        with self._state:
            n = self._requests.n_missing
        raise RunError(
            f"generation was not finished within {timeout:g} s; {n} completions were left with "
            f"the rollout actors",
            remedy="raise run.timeout, or request fewer or shorter completions",
        )

    @property
    def unfinished(self) -> bool:
        """Whether any request is unanswered."""
        with self._state:
            return bool(self._requests)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Dispatch nothing within the block; actors load weights only by ``load_weights``."""
        with self._state:
            self._dispatcher.paused = True
        try:
            self._wait_until_loaded()
            yield
        finally:
            with self._state:
                self._dispatcher.paused = False
                self._dispatcher.go_on()

    def load_weights(self, weights: SentWeights) -> None:
        """Have every ready actor load weights, and check it; call within ``paused``."""
        with self._state:
            self._dispatcher.weights = weights
            for slot in self._actors.ready:
                self._actors.load(slot, weights)
        self._wait_until_loaded()

    def fingerprints(self) -> list[tuple[str, dict[str, int]]]:
        """Return the ready actors' names with the checksums of their weights.

        Raises:
            RlvrError: If an actor fails to compute them.
        """
        with self._state:
            calls = [(slot, self._actors.call(slot, "fingerprint")) for slot in self._actors.ready]
        checksums = []
        for slot, reference in calls:
            reply = self._reply(slot, reference)
            if reply is None:  # lost meanwhile
                continue
            if reply.kind == "failed":
                raise reply.value
            checksums.append((slot.name, reply.value))
        return checksums

    def cancel(self) -> None:
        """Cancel every request, here and on the actors, before returning."""
        with self._state:
            futures = self._requests.clear()
            busy = [slot for slot in self._actors.ready if slot.items]
            for slot in self.slots:
                slot.items = {}
            calls = [(slot, self._actors.call(slot, "abort")) for slot in busy]
            self._state.notify_all()
        for future in futures:
            future.cancel()
        for slot, reference in calls:
            self._reply(slot, reference)

    def fail(self, error: RlvrError) -> None:
        """Fail every request, now and in future."""
        self._dispatcher.fail(error)

    def n_ready(self) -> int:
        """Return the number of actors that hold the right weights and are ready."""
        with self._state:
            return len(self._actors.ready)

    def counts(self) -> tuple[int, int]:
        """Return how many actors were replaced and how many completions requested again."""
        with self._state:
            return self._actors.restarts, self._requests.resent

    def take_events(self) -> list[str]:
        """Return the messages about actors since the last call."""
        with self._state:
            events, self._actors.events = self._actors.events, []
        return events

    def close(self) -> None:
        """End all actors; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._dispatcher.close(_CLOSE_TIMEOUT)
        self._actors.close(_CLOSE_TIMEOUT)

    def _wait_until_loaded(self) -> None:
        self._wait_until(
            lambda: not self._actors.loading, lambda: "a rollout actor did not load its weights"
        )

    def _wait_until(self, reached: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait until the pool's thread has reached a state.

        Raises:
            RunError: If it takes longer than the deadline.
            RlvrError: If the actors cannot continue.
        """
        until = time.monotonic() + self._deadline
        with self._state:
            while not reached():
                self._dispatcher.raise_broken()
                left = until - time.monotonic()
                if left <= 0:
                    raise RunError(
                        f"{what()} within {self._deadline:g} s",
                        where="engine.with",
                        remedy="raise engine.with.deadline",
                    )
                self._state.wait(min(left, POLL))
            self._dispatcher.raise_broken()

    def _reply(self, slot: Slot, reference: Any) -> Reply | None:
        """Wait for an actor's answer; None if it was lost, which the pool's thread handles."""
        import ray

        try:
            reply: Reply = ray.get(reference, timeout=self._deadline)
        except ray.exceptions.GetTimeoutError as error:
            raise RunError(
                f"{slot.name} did not answer within {self._deadline:g} s",
                remedy="raise engine.with.deadline",
            ) from error
        except ray.exceptions.RayError:
            return None
        return reply
