"""Verifiers in actors on the nodes of a Ray cluster: the verifier pool ``cluster/ray-pool``.

Each actor has a pool of killable worker processes, as a run without Ray has on its own machine, so
limits and verdicts are the same. One thread of the run hands whole groups to the actors. If an
actor is lost, another judges its unanswered groups.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

from rlvr_cluster.ray.actor_args import passed_on
from rlvr_cluster.ray.cluster import connect, resources
from rlvr_cluster.ray.placement import Placement, reserve
from rlvr_cluster.ray.verifier_actor import PoolArgs, VerifierActor
from rlvr_cluster.ray.verifier_options import (
    WHERE,
    Ended,
    Group,
    Place,
    RayPoolConfig,
    Verdicts,
    joined_stats,
    resolve,
)
from rlvr_core.api import (
    Completion,
    Json,
    Problem,
    RlvrError,
    RunError,
)
from rlvr_core.toolkit import VerifierSpec, VerifierStats, __version__

_POLL = 0.5
"""Seconds between checks of the deadlines while nothing happens."""
_FIRST_PAUSE = 1.0
"""Seconds before the first replacement of an actor; doubled for each further one in a row."""
_LONGEST_PAUSE = 30.0
_STATS_PATIENCE = 5.0
_CALLS_AT_ONCE = 1000


class RayVerifierPool:
    """Judges completions in actors; a ``VerifierPool``. Methods may be called from any thread.

    Args:
        options: Values of ``RayPoolConfig``, as the config resolves them.
        verifiers: How to construct each verifier, by the name of its verdicts.
        workers: Processes of each actor.
        timeout: See ``VerifierPool``.
        memory_mb: See ``VerifierPool``.

    Raises:
        MachineError: If Ray is missing, no cluster answers, or it has too little room.
        RlvrError: If an actor cannot start its workers.
    """

    Config = RayPoolConfig

    def __init__(
        self,
        options: Mapping[str, Json],
        verifiers: Mapping[str, VerifierSpec],
        *,
        workers: int,
        timeout: float,
        memory_mb: int,
    ) -> None:
        self._config = RayPoolConfig(**options)
        self._names = frozenset(verifiers)
        self._cpus = self._config.cpus or workers
        self._connected = connect(self._config.address, "verify.pool ray-pool", f"{WHERE}.address")
        self._places = [Place(index) for index in range(self._config.actors)]
        self._queue: deque[Group] = deque()
        self._news: SimpleQueue[Group | Ended | None] = SimpleQueue()
        self._stats: dict[tuple[int, int], dict[str, VerifierStats]] = {}
        self._lock = threading.Lock()
        self._broken: RlvrError | None = None
        self._up: Future[None] = Future()
        self._closing = False
        self._waits_since: float | None = None
        self._args = PoolArgs(
            {name: (spec.target, dict(spec.config)) for name, spec in verifiers.items()},
            workers,
            timeout,
            memory_mb,
            tuple(sys.path),
            passed_on(),
            __version__,
        )
        self._placement: Placement | None = None
        self._thread = threading.Thread(target=self._run, name="ray-verifiers", daemon=True)
        try:
            self._placement = reserve(
                {"CPU": self._cpus}, self._config.actors, self._config.deadline, WHERE
            )
            self._thread.start()
            self._up.result()
        except BaseException:
            self.close()
            raise

    def submit_group(
        self, problem: Problem, completions: Sequence[Completion], verifiers: Sequence[str]
    ) -> Future[Verdicts]:
        """Judge the completions of one problem with each of the verifiers; see ``VerifierPool``.

        Raises:
            KeyError: If a verifier is not one of the pool's.
            RlvrError: If the actors cannot go on, or the pool is closed.
        """
        names = tuple(dict.fromkeys(verifiers))
        for name in names:
            if name not in self._names:
                raise KeyError(f"the pool has no verifier {name!r}")
        group = Group((problem, tuple(completions), names))
        group.future.set_running_or_notify_cancel()
        if not names or not completions:
            group.future.set_result([{} for _ in completions])
            return group.future
        with self._lock:
            if self._broken is not None:
                raise self._broken
            if self._closing:
                raise RunError("the verifier pool is closed")
            self._news.put(group)
        return group.future

    def stats(self) -> dict[str, VerifierStats]:
        """Return counts and seconds of all actors, and the latencies of the slowest.

        Those of a lost actor are as they were at the last call.
        """
        import ray

        there = [(place.index, place.number, place.actor) for place in self._places if place.ready]
        waiting = [((n, m), actor.stats.remote()) for n, m, actor in there if actor is not None]
        for key, reference in waiting:
            with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
                self._stats[key] = ray.get(reference, timeout=_STATS_PATIENCE)
        return joined_stats(self._stats.values())

    def pids(self) -> list[int]:
        """Return no process ids: the workers are not children of the run."""
        return []

    def close(self) -> None:
        """End the actors; pending groups fail. Safe to call twice."""
        import ray

        with self._lock:
            first, self._closing = not self._closing, True
        if not first:
            return
        if self._thread.is_alive():
            self._news.put(None)
            self._thread.join()
        for place in self._places:
            if place.actor is not None:
                ray.kill(place.actor)
        if self._placement is not None:
            self._placement.remove()
        if self._connected:
            ray.shutdown()

    def __enter__(self) -> RayVerifierPool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- in the pool's thread ------------------------------------------------------------------

    def _run(self) -> None:
        error: RlvrError = RunError("the verifier pool was closed")
        try:
            while not self._closing:
                self._start_due()
                self._dispatch()
                self._listen()
                self._check_present()
        except RlvrError as caught:
            error = caught
        except BaseException as caught:
            error = RunError(f"the verifier pool failed: {type(caught).__name__}: {caught}")
            raise
        finally:
            self._fail(error)

    def _fail(self, error: RlvrError) -> None:
        """Fail all waiting and all future groups."""
        with self._lock:
            self._broken = error
            left = [*self._queue, *(group for place in self._places for group in place.groups)]
            while not self._news.empty():
                news = self._news.get()
                left += [news] if isinstance(news, Group) else []
        for group in left:
            resolve(group.future, error)
        resolve(self._up, error)

    def _start_due(self) -> None:
        now = time.monotonic()
        for place in self._places:
            if place.actor is None and place.start_at <= now:
                place.actor, place.number = self._create(place.index), place.number + 1
                self._call(place, None, place.actor.start.remote(self._args))

    def _create(self, index: int) -> Any:
        import ray

        assert self._placement is not None
        made = ray.remote(VerifierActor).options(
            num_cpus=self._cpus,
            max_restarts=0,
            max_concurrency=_CALLS_AT_ONCE,
            scheduling_strategy=self._placement.strategy(index),
        )
        return made.remote()

    def _call(self, place: Place, group: Group | None, reference: Any) -> None:
        number = place.number
        reference.future().add_done_callback(
            lambda done: self._news.put(Ended(place, number, group, done))
        )

    def _dispatch(self) -> None:
        """Give each waiting group to the least loaded actor."""
        while self._queue:
            ready = [place for place in self._places if place.ready]
            place = min(ready, key=lambda place: len(place.groups), default=None)
            if place is None or len(place.groups) >= self._config.groups:
                return
            group = self._queue.popleft()
            place.groups.append(group)
            self._call(place, group, place.actor.judge.remote(*group.request))

    def _listen(self) -> None:
        """Handle new events, or wait half a second for one."""
        with contextlib.suppress(Empty):
            news = self._news.get(timeout=_POLL)
            while True:
                if isinstance(news, Group):
                    self._queue.append(news)
                elif news is not None and news.number == news.place.number:
                    self._take(news)
                news = self._news.get_nowait()

    def _take(self, ended: Ended) -> None:
        place, group = ended.place, ended.group
        if place.actor is None:
            return  # another of its calls has already reported its loss
        lost = ended.result.exception()
        if lost is not None:
            self._lost(place, lost)
            return
        reply = ended.result.result()
        if group is None:
            if reply.kind != "done":
                raise reply.value
            place.ready, place.where = True, reply.value
            if not self._up.done() and all(place.ready for place in self._places):
                self._up.set_result(None)
            return
        place.groups.remove(group)
        place.deaths = 0
        resolve(group.future, reply.value)

    def _lost(self, place: Place, error: BaseException) -> None:
        """Replace a lost actor, and queue its groups for others.

        Raises:
            RunError: If too many were lost.
        """
        import ray

        ray.kill(place.actor)  # it may live on although Ray cannot reach it
        groups, place.groups = place.groups, []
        place.actor, place.ready = None, False
        place.deaths += 1
        place.start_at = time.monotonic() + min(
            _FIRST_PAUSE * 2 ** (place.deaths - 1), _LONGEST_PAUSE
        )
        for group in groups:
            group.lost += 1
        self._queue.extendleft(reversed(groups))
        worst = max([place.deaths, *(group.lost for group in groups)])
        if worst > self._config.restarts:
            cause = next((line for line in str(error).splitlines() if line.strip()), type(error))
            raise RunError(
                f"verifier actor {place.index} ({place.where or 'not started'}) was lost, the last "
                f"of {worst} in a row without an answer or with the same completions: {cause}",
                where=WHERE,
                remedy=f"{WHERE}.restarts ({self._config.restarts}) says how often it is "
                "replaced; rlvr run --resume goes on from the last checkpoint",
            )

    def _check_present(self) -> None:
        """Check that all actors start, and that one is ready while groups are waiting.

        Raises:
            RunError: If that takes longer than the deadline.
        """
        starting, now = not self._up.done(), time.monotonic()
        if not starting and (not self._queue or any(place.ready for place in self._places)):
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = now
        elif now - self._waits_since > self._config.deadline:
            missing = sum(not place.ready for place in self._places)
            raise RunError(
                f"{missing} of {len(self._places)} verifier actors were not there for "
                f"{self._config.deadline:g} s; the cluster has {resources()}",
                where=WHERE,
                remedy="add nodes: ray start --address=HEAD:6379",
            )
