"""Requests spread over rollout actors: nothing lost and nothing counted twice when one is lost.

One thread hears of everything that happens to actors. A share is a request, or one completion of it
where the engine takes requests while it generates; it waits in the queue or is with one actor,
never both, until it is answered. What an actor has not answered when it is lost goes back to the
head of the queue, with its seeds.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

from rlvr_core.api import GenerationRequest, RlvrError, RunError
from rlvr_core.builtin.ray.actor import Answers, Held, Reply
from rlvr_core.builtin.ray.cluster import last_lines, resources
from rlvr_core.builtin.ray.slots import (
    NODE_DIED,
    Limits,
    PendingRequest,
    Share,
    Slot,
    cause_of,
)

FIRST_PAUSE = 1.0
"""Seconds before the first replacement of an actor; doubled at each further one."""
_LONGEST_PAUSE = 30.0
_GLANCE = 0.5
"""Seconds between looks at the clock while nothing happens."""
_FAREWELL = 5.0


Call = tuple[Slot, int, str, int, Future[Any]]
"""Slot, number of its actor, what was asked, ticket, answer."""


class ActorPool:
    """The actors of one process of a run. Methods may be called from any thread.

    Args:
        slots: Their places.
        limits: Deadlines and numbers.
        args: Reference to the ``ActorArgs``.
        single: Whether each completion is asked for by itself.
        check: Called with an actor's name and its reply to ``load_weights``, in the pool's thread;
            raises ``RlvrError`` if it does not hold what was sent.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        limits: Limits,
        args: Any,
        *,
        single: bool,
        check: Callable[[str, Held, Any], None],
    ) -> None:
        self.slots = list(slots)
        self.held: Held | None = None
        self.version = 0
        self.restarts = self.resent = 0
        self._limits, self._args, self._single, self._check = limits, args, single, check
        self._state = threading.Condition()  # guards all below, and the slots
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._tickets = itertools.count()
        self._submitted: list[PendingRequest] = []
        self._queue: deque[Share] = deque()
        self._left: dict[int, PendingRequest] = {}
        self._outcomes: list[tuple[PendingRequest, RlvrError | None]] = []
        self._events: list[str] = []
        self._holding = False
        self._broken: RlvrError | None = None
        self._closing = False
        self._up = False
        self._nobody_since: float | None = None
        self._thread = threading.Thread(target=self._manage, name="ray-actors", daemon=True)

    # -- from any thread -------------------------------------------------------------------------

    def start(self, held: Held | None) -> None:
        """Start the actors, and return when all but the elastic ones are ready.

        Raises:
            RlvrError: If one does not start.
        """
        self.held = held
        self._thread.start()
        fixed = [slot for slot in self.slots if not slot.elastic]
        self._await(
            lambda: all(slot.state == "ready" for slot in fixed),
            lambda: (
                f"{sum(slot.state != 'ready' for slot in fixed)} of {len(fixed)} rollout "
                f"actors did not start; the cluster has {resources()}"
            ),
        )
        with self._state:
            self._up = True

    def submit(self, request: GenerationRequest) -> Future[Answers]:
        """Queue a request for the next ``begin``; its future is resolved by the pool's thread."""
        pending = PendingRequest(request, Future(), [None] * len(request.seeds))
        if not request.seeds:
            pending.future.set_result(())
            return pending.future
        with self._state:
            self._raise()
            self._left[id(pending)] = pending
            self._submitted.append(pending)
        return pending.future

    def begin(self) -> None:
        """Send what was submitted."""
        with self._state:
            for pending in self._submitted:
                n = len(pending.answers)
                size = 1 if self._single else n
                self._queue += [Share(pending, first, size) for first in range(0, n, size)]
            self._submitted = []
            self._dispatch()

    def wait(self, timeout: float | None) -> None:
        """Begin what is submitted, also meanwhile, and return when nothing is left.

        Raises:
            RunError: If that took longer than ``timeout`` seconds.
            RlvrError: If the actors cannot go on.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self.begin()
            with self._state:
                self._raise()
                if not self._left:
                    return
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    break
                if not self._submitted:
                    self._state.wait(_GLANCE if left is None else min(left, _GLANCE))
        with self._state:
            n = sum(pending.answers.count(None) for pending in self._left.values())
        raise RunError(
            f"generation was not finished within {timeout:g} s; {n} completions were left with "
            f"the rollout actors",
            remedy="raise run.timeout, or ask for fewer or shorter completions",
        )

    @property
    def unfinished(self) -> bool:
        """Whether a request is not answered."""
        with self._state:
            return bool(self._left)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Within the block nothing is dispatched, and no actor loads weights but by ``give``."""
        with self._state:
            self._holding = True
        try:
            self._await(self._none_loading, lambda: "a rollout actor did not load its weights")
            yield
        finally:
            with self._state:
                self._holding = False
                self._go_on()

    def give(self, held: Held) -> None:
        """Within ``holding``: have every ready actor load weights, and check that it did."""
        with self._state:
            self.held, self.version = held, held.version
            for slot in self.slots:
                if slot.state == "ready":
                    self._load(slot)
        self._await(self._none_loading, lambda: "a rollout actor did not load its weights")

    def ask_all(self, method: str) -> list[tuple[str, Any]]:
        """Ask every ready actor for something; those that are lost meanwhile give nothing.

        Raises:
            RlvrError: If one says that it cannot.
        """
        with self._state:
            asked = [(slot, self._ask(slot, method)) for slot in self._ready()]
        given = []
        for slot, reference in asked:
            reply = self._hear(slot, reference)
            if reply is None:
                continue
            if reply.kind == "failed":
                raise reply.value
            given.append((slot.name, reply.value))
        return given

    def cancel(self) -> None:
        """Cancel every request, on the actors too, before it returns."""
        with self._state:
            left, self._left = list(self._left.values()), {}
            self._submitted, self._outcomes = [], []
            self._queue.clear()
            asked = [slot for slot in self._ready() if slot.shares]
            for slot in self.slots:
                slot.shares = {}
            told = [(slot, self._ask(slot, "abort")) for slot in asked]
            self._state.notify_all()
        for pending in left:
            pending.future.cancel()
        for slot, reference in told:
            self._hear(slot, reference)

    def fail(self, error: RlvrError) -> None:
        """Fail every request, and all to come."""
        with self._state:
            self._break(error)
        self._calls.put(None)

    def n_ready(self) -> int:
        """Actors that hold the right weights and can be asked."""
        with self._state:
            return len(self._ready())

    def take_events(self) -> list[str]:
        """Messages about actors since the last call."""
        with self._state:
            events, self._events = self._events, []
        return events

    def close(self) -> None:
        """End all actors; safe to call twice."""
        import ray

        with self._state:
            if self._closing:
                return
            self._closing = True
            self._break(RunError("the engine was closed before the request was finished"))
            actors = [slot.actor for slot in self.slots if slot.actor is not None]
            started = [
                slot.actor for slot in self.slots if slot.state not in ("absent", "starting")
            ]
        self._calls.put(None)
        if self._thread.is_alive():
            self._thread.join(_FAREWELL)
        farewells = [actor.close.remote() for actor in started]
        if farewells:
            ray.wait(farewells, num_returns=len(farewells), timeout=_FAREWELL)
        for actor in actors:
            ray.kill(actor)

    # -- the pool's thread -----------------------------------------------------------------------

    def _manage(self) -> None:
        while not self._closing:
            try:
                call = self._calls.get(timeout=_GLANCE)
            except Empty:
                call = None
            try:
                with self._state:
                    if call is not None:
                        self._hear_call(*call)
                    self._go_on()
            except RlvrError as error:
                self.fail(error)
            except Exception as error:
                self.fail(RunError(f"engine ray failed: {type(error).__name__}: {error}"))
            self._resolve()
        self._resolve()

    def _hear_call(
        self, slot: Slot, number: int, what: str, ticket: int, answer: Future[Any]
    ) -> None:
        if number != slot.number or slot.state == "absent" or self._closing:
            return  # of an actor that was lost already
        if (error := answer.exception()) is not None:
            self._lost(slot, error)
            return
        reply: Reply | None = answer.result()
        if what in ("submit", "ask", "stay") or reply is None:
            return
        if what == "answer":
            share = slot.shares.pop(ticket, None)
            if share is not None:
                self._answered(slot, share, reply)
            return
        if reply.kind != "done":
            self._refused(slot, reply.value)
            return
        if what == "start":
            slot.where, slot.state = reply.value, "started"
            self._call(slot, "stay", slot.actor.stay.remote())
            if slot.elastic or slot.number > 1:
                self._events.append(f"{slot.label} has joined")
        else:
            assert self.held is not None
            self._check(slot.name, self.held, reply.value)
            slot.state = "ready"

    def _answered(self, slot: Slot, share: Share, reply: Reply) -> None:
        pending = share.pending
        if pending.future.done():
            return
        if reply.kind == "cancelled":
            self._requeue([share])
            return
        if reply.kind == "failed":
            self._outcomes.append((pending, reply.value))
            return
        slot.deaths = 0
        given = reply.value
        if len(given) != share.n:
            what = f"gave {len(given)} completions for {share.n} seeds"
            raise RunError(f"request {pending.request.id}: {slot.name} {what}")
        if other := [one.version for one in given if one.version != self.version]:
            raise RunError(
                f"request {pending.request.id}: {slot.name} sampled under version {other[0]}, and "
                f"was to hold {self.version}",
                remedy="an engine labels what it samples with the version of its last load_weights",
            )
        pending.answers[share.first : share.first + share.n] = given
        if None not in pending.answers:
            self._outcomes.append((pending, None))

    def _resolve(self) -> None:
        """Resolve futures, outside of the lock: what is called back may submit more."""
        with self._state:
            outcomes, self._outcomes = self._outcomes, []
        for pending, error in outcomes:
            if pending.future.done():
                continue
            if error is None:
                pending.future.set_result(tuple(one for one in pending.answers if one is not None))
            else:
                pending.future.set_exception(error)
        if outcomes:
            with self._state:
                for pending, _ in outcomes:
                    self._left.pop(id(pending), None)
                self._state.notify_all()

    # -- under the lock --------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Start what is due, give weights to who waits for them, and dispatch."""
        if self._closing or self._broken is not None:
            return
        now = time.monotonic()
        for slot in self.slots:
            if slot.state == "absent" and slot.due <= now:
                self._create(slot)
            elif slot.state == "started" and self.held is None:
                slot.state = "ready"
            elif slot.state == "started" and not self._holding:
                self._load(slot)
        self._watch_room(now)
        self._dispatch()
        self._state.notify_all()

    def _create(self, slot: Slot) -> None:
        slot.actor, slot.number, slot.state = slot.create(), slot.number + 1, "starting"
        index = self.slots.index(slot)
        self._call(slot, "start", slot.actor.start.remote(self._args, index))

    def _load(self, slot: Slot) -> None:
        slot.state = "loading"
        self._call(slot, "load", slot.actor.load_weights.remote(self.held))

    def _ask(self, slot: Slot, method: str) -> Any:
        reference = getattr(slot.actor, method).remote()
        self._call(slot, "ask", reference)
        return reference

    def _call(self, slot: Slot, what: str, reference: Any, ticket: int = -1) -> None:
        number, answer = slot.number, reference.future()
        answer.add_done_callback(lambda done: self._calls.put((slot, number, what, ticket, done)))

    def _dispatch(self) -> None:
        """Hand queued shares to the actors with least to do.

        An engine that takes no requests while it generates is given its next ones when it has
        finished those before, so that what is in its batch is no matter of timing.
        """
        if self._holding or self._broken is not None:
            return
        idle = [slot for slot in self._ready() if self._single or not slot.shares]
        loads = {slot.name: slot.load for slot in idle}
        batches: dict[str, list[tuple[int, Share]]] = {slot.name: [] for slot in idle}
        while self._queue and idle:
            share = self._queue[0]
            slot = min(idle, key=lambda one: loads[one.name])
            load = loads[slot.name]
            if load and load + share.n > self._limits.max_in_flight:
                break
            self._queue.popleft()
            if share.pending.future.done():
                continue  # another share of it failed
            loads[slot.name] += share.n
            batches[slot.name].append((next(self._tickets), share))
        for slot in idle:
            if batch := batches[slot.name]:
                slot.shares |= dict(batch)
                asked = [(ticket, share.request) for ticket, share in batch]
                self._call(slot, "submit", slot.actor.submit.remote(asked))
                for ticket, _ in batch:
                    self._call(slot, "answer", slot.actor.answer.remote(ticket), ticket)

    def _lost(self, slot: Slot, error: BaseException) -> None:
        """Take back what a lost actor has not answered, and replace it."""
        import ray

        lost, slot.shares = list(slot.shares.values()), {}
        before, slot.state = slot.state, "absent"
        ray.kill(slot.actor)  # one that Ray cannot reach may live
        cause = cause_of(error)
        if before == "starting" and NODE_DIED in cause:  # Ray had queued it on a node that went
            slot.due = time.monotonic() + FIRST_PAUSE
            return
        slot.deaths += 1
        for share in lost:
            share.lost += 1
        self._requeue(lost)
        worst = max((share.lost for share in lost), default=0)
        if max(slot.deaths, worst) > self._limits.restarts:
            self._give_up(slot, cause, worst)
            return
        self.restarts += 1
        pause = min(FIRST_PAUSE * 2 ** (slot.deaths - 1), _LONGEST_PAUSE)
        slot.due = time.monotonic() + pause
        n = sum(share.n for share in lost)
        doing = f"with {n} completions unfinished" if before == "ready" else f"while {before}"
        self._events.append(
            f"{slot.label} was lost {doing}: {cause}; it is replaced where there is room"
        )

    def _give_up(self, slot: Slot, cause: str, worst: int) -> None:
        """Stop replacing an actor.

        Raises:
            RunError: If the run cannot do without it.
        """
        times = f"{slot.deaths} times in a row without an answer"
        if slot.deaths <= self._limits.restarts:
            times = f"the last of {worst} that were lost with the same completion"
        what = f"{slot.label} was lost, {times}: {cause}"
        if slot.elastic and worst <= self._limits.restarts:
            slot.state = "given up"
            self._events.append(f"{what}; it is given up")
            return
        where = slot.where
        lines = last_lines(where["node"], where["log"]) if where else []
        raise RunError(
            what,
            where="engine.with",
            remedy=(
                *(f"its last words: {line}" for line in lines),
                "rlvr run --resume goes on from the last checkpoint",
                f"engine.with.restarts ({self._limits.restarts}) says how often it is replaced",
            ),
        )

    def _refused(self, slot: Slot, error: RlvrError) -> None:
        """Handle an actor that lives and says that it cannot start, or load weights.

        Raises:
            RlvrError: At the start of the run, and if it cannot load weights.
        """
        if slot.state == "starting" and (self._up or slot.elastic):
            self._lost(slot, error)
            return
        raise error

    def _watch_room(self, now: float) -> None:
        """Fail if work waits and no actor has been there for too long."""
        if not self._up or not self._left or self._ready() or not self._none_loading():
            self._nobody_since = None
        elif self._nobody_since is None:
            self._nobody_since = now
        elif now - self._nobody_since > self._limits.deadline:
            raise RunError(
                f"no rollout actor was left for {self._limits.deadline:g} s; the cluster has "
                f"{resources()}",
                where="engine.with",
                remedy=(
                    "add nodes: ray start --address=HEAD:6379",
                    "rlvr run --resume goes on from the last checkpoint",
                ),
            )

    def _requeue(self, shares: Iterable[Share]) -> None:
        back = [share for share in shares if not share.pending.future.done()]
        self.resent += sum(share.n for share in back)
        self._queue.extendleft(reversed(back))

    def _ready(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.state == "ready"]

    def _none_loading(self) -> bool:
        return all(slot.state != "loading" for slot in self.slots)

    def _raise(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _break(self, error: RlvrError) -> None:
        self._broken = self._broken or error
        self._outcomes += [(pending, self._broken) for pending in self._left.values()]
        self._queue.clear()
        self._submitted = []
        self._state.notify_all()

    def _await(self, reached: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait for the pool's thread.

        Raises:
            RunError: If it takes longer than the deadline.
            RlvrError: If the actors cannot go on.
        """
        until = time.monotonic() + self._limits.deadline
        with self._state:
            while not reached():
                self._raise()
                left = until - time.monotonic()
                if left <= 0:
                    raise RunError(
                        f"{what()} within {self._limits.deadline:g} s",
                        where="engine.with",
                        remedy="raise engine.with.deadline",
                    )
                self._state.wait(min(left, _GLANCE))
            self._raise()

    def _hear(self, slot: Slot, reference: Any) -> Reply | None:
        """Wait for the answer of an actor; None if it was lost, which the pool's thread handles."""
        import ray

        try:
            reply: Reply = ray.get(reference, timeout=self._limits.deadline)
        except ray.exceptions.GetTimeoutError as error:
            raise RunError(
                f"{slot.name} did not answer within {self._limits.deadline:g} s",
                remedy="raise engine.with.deadline",
            ) from error
        except ray.exceptions.RayError:
            return None
        return reply
