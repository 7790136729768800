"""Starts and calls the actors of a pool, and replaces lost ones."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Literal

from rlvr_cluster.ray.cluster import resources
from rlvr_cluster.ray.messages import Reply, SentWeights
from rlvr_cluster.ray.requests import WorkItem
from rlvr_cluster.ray.slots import Limits, Slot
from rlvr_core.api import RunError

FIRST_PAUSE = 1.0
"""Seconds before the first replacement of an actor; doubled for each further one."""
_LONGEST_PAUSE = 30.0
_NODE_DIED = "node has died"
"""Ray's text for an actor whose node is gone."""

Method = Literal["start", "load_weights", "submit", "answer", "abort", "fingerprint", "stay"]


@dataclass(frozen=True, slots=True)
class Call:
    """A finished call of an actor.

    Attributes:
        slot: The actor's slot.
        number: The actor's number in the slot.
        method: The called method.
        ticket: The ticket of an ``answer``; -1 for other methods.
        result: The reply, or Ray's exception if the actor is lost.
    """

    slot: Slot
    number: int
    method: Method
    ticket: int
    result: Future[Reply]


class Actors:
    """The actors of a pool. The pool's lock guards it.

    Args:
        slots: The slots of the actors.
        limits: Deadlines and numbers.
        args: Reference to the ``ActorArgs``.

    Attributes:
        ended: Finished calls, for the pool's thread; None only wakes it.
        up: Whether the run has begun; from then on, an actor that fails to start is replaced.
        restarts: Number of replacements so far.
        events: Messages about lost and new actors.
    """

    def __init__(self, slots: Sequence[Slot], limits: Limits, args: Any) -> None:
        self.slots = list(slots)
        self.ended: SimpleQueue[Call | None] = SimpleQueue()
        self.up = False
        self.restarts = 0
        self.events: list[str] = []
        self._limits, self._args = limits, args
        self._tickets = itertools.count()
        self._nobody_since: float | None = None

    @property
    def ready(self) -> list[Slot]:
        """The slots whose actors hold the weights and accept requests."""
        return [slot for slot in self.slots if slot.state == "ready"]

    @property
    def loading(self) -> bool:
        """Whether any actor is loading weights."""
        return any(slot.state == "loading" for slot in self.slots)

    # -- calls -----------------------------------------------------------------------------------

    def start_due(self) -> None:
        """Create the missing actors whose start time has come."""
        now = time.monotonic()
        for slot in self.slots:
            if slot.state == "absent" and slot.start_at <= now:
                slot.actor, slot.number, slot.state = slot.create(), slot.number + 1, "starting"
                self.call(slot, "start", self._args, slot.index)

    def joined(self, slot: Slot, where: dict[str, Any]) -> None:
        """Register an actor that has started."""
        slot.where, slot.state = where, "started"
        self.call(slot, "stay")
        if slot.number > 1:
            self.events.append(f"{slot.label} has joined")

    def load(self, slot: Slot, weights: SentWeights) -> None:
        """Have an actor load weights."""
        slot.state = "loading"
        self.call(slot, "load_weights", weights)

    def give(self, slot: Slot, items: Sequence[WorkItem]) -> None:
        """Request completions from an actor."""
        batch = {next(self._tickets): item for item in items}
        slot.items |= batch
        self.call(slot, "submit", [(ticket, item.request) for ticket, item in batch.items()])
        for ticket in batch:
            self.call(slot, "answer", ticket)

    def call(self, slot: Slot, method: Method, *arguments: Any) -> Any:
        """Call an actor, whose result goes to ``ended``; return Ray's reference."""
        reference = getattr(slot.actor, method).remote(*arguments)
        number, ticket = slot.number, arguments[0] if method == "answer" else -1
        reference.future().add_done_callback(
            lambda done: self.ended.put(Call(slot, number, method, ticket, done))
        )
        return reference

    # -- losses ----------------------------------------------------------------------------------

    def lost(self, slot: Slot, error: BaseException) -> list[WorkItem]:
        """Replace a lost actor; return its unanswered work.

        Raises:
            RunError: If its place lost too many, or too many were lost with the same completion.
        """
        import ray

        items, slot.items = list(slot.items.values()), {}
        before, slot.state = slot.state, "absent"
        ray.kill(slot.actor)  # it may live on although Ray cannot reach it
        cause = cause_of(error)
        if before == "starting" and _NODE_DIED in cause:  # Ray had queued it on a lost node
            slot.start_at = time.monotonic() + FIRST_PAUSE
            return items
        slot.deaths += 1
        for item in items:
            item.lost += 1
        worst = max((item.lost for item in items), default=0)
        if max(slot.deaths, worst) > self._limits.restarts:
            raise self._given_up(slot, cause, worst)
        self.restarts += 1
        slot.start_at = time.monotonic() + min(FIRST_PAUSE * 2 ** (slot.deaths - 1), _LONGEST_PAUSE)
        n = sum(item.n for item in items)
        doing = f"with {n} completions unfinished" if before == "ready" else f"while {before}"
        self.events.append(
            f"{slot.label} was lost {doing}: {cause}; it is replaced when there is room"
        )
        return items

    def _given_up(self, slot: Slot, cause: str, worst: int) -> RunError:
        """Return the error that ends the run when a place has lost too many actors."""
        times = f"{slot.deaths} times in a row without an answer"
        if slot.deaths <= self._limits.restarts:
            times = f"the last of {worst} that were lost with the same completion"
        return RunError(
            f"{slot.label} was lost, {times}: {cause}",
            where="engine.with",
            remedy=(
                "Ray's logs on that node have its last words; rlvr run --resume goes on from the "
                "last checkpoint",
                f"engine.with.restarts ({self._limits.restarts}) says how often it is replaced",
            ),
        )

    def check_present(self, wanted: bool) -> None:
        """Check that there are actors.

        Args:
            wanted: Whether completions are wanted.

        Raises:
            RunError: If they are, and there has been no actor for longer than the deadline.
        """
        now = time.monotonic()
        if not self.up or not wanted or self.ready or self.loading:
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

    def close(self, timeout: float) -> None:
        """End all actors; running engines have ``timeout`` seconds to close."""
        import ray

        running = [slot for slot in self.slots if slot.state in ("started", "loading", "ready")]
        closed = [slot.actor.close.remote() for slot in running]
        if closed:
            ray.wait(closed, num_returns=len(closed), timeout=timeout)
        for slot in self.slots:
            if slot.actor is not None:
                ray.kill(slot.actor)


def cause_of(error: BaseException) -> str:
    """Return Ray's reason for the loss of an actor, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [
        line for line in lines if " died" in line or "dead because" in line or "Error" in line
    ]
    text = telling[-1] if telling else (lines[0] if lines else type(error).__name__)
    return text.partition(" Some common causes")[0][:300]
