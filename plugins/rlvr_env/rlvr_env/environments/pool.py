"""Worker processes for environments; a call that hangs is killed together with its process.

Asynchronous environments need no process: their calls go to an event loop. Of the others, the
caller keeps the states of conversations between calls, so that a worker's death loses only the
conversation of its current call. A call is never repeated, because it may have had side effects.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any

from rlvr_core.api import EnvironmentTraits, Json, traits_of
from rlvr_core.workers.pool import Fault, PoolCall, ProcessPool
from rlvr_core.workers.process import ComponentSpec
from rlvr_env.environments.coroutines import Coroutines
from rlvr_env.environments.faults import EnvironmentFailedError, EnvironmentTimeoutError
from rlvr_env.environments.worker import Call


class EnvironmentPool:
    """Calls environments in worker processes. Methods may be called from any thread.

    Args:
        specs: How to construct each environment, by full name.
        instances: Instances of the asynchronous ones among them, which are used as they are;
            others are left out.
        workers: Number of processes.
        timeout: Seconds a call may take, unless its environment has a ``time_limit``.
    """

    def __init__(
        self,
        specs: Mapping[str, ComponentSpec],
        instances: Mapping[str, Any] = MappingProxyType({}),
        *,
        workers: int,
        timeout: float,
    ) -> None:
        self._limits = {name: spec.time_limit(timeout) for name, spec in specs.items()}
        self._asynchronous = {
            name: instance
            for name, instance in instances.items()
            if traits_of(instance, EnvironmentTraits).asynchronous
        }
        self._coroutines = Coroutines(self._asynchronous, self._limits)
        in_processes = {n: spec for n, spec in specs.items() if n not in self._asynchronous}
        self._pool = ProcessPool(
            "pool of environments",
            in_processes,
            "rlvr_env.environments.worker:answer",
            workers=workers,
            lazy=True,
        )

    def submit(self, call: Call) -> Future[dict[str, Json]]:
        """Submit a call; its future gets the answer, or an ``EnvironmentFailedError``.

        Raises:
            RunError: If the pool is closed.
        """
        if call.name in self._asynchronous:
            return self._coroutines.submit(call)
        future: Future[dict[str, Json]] = Future()

        def done(answer: Json, fault: Fault | None, seconds: float) -> None:
            del seconds
            if fault is None:
                future.set_result(answer)
            else:
                future.set_exception(_error(call, fault))

        payload = (pickle.dumps(call, pickle.HIGHEST_PROTOCOL),)
        self._pool.submit([PoolCall(call.name, payload, self._limits[call.name], done)])
        return future

    def holds(self, name: str) -> bool:
        """Return whether an environment's conversations stay in this process until ``close``."""
        return name in self._asynchronous

    @property
    def starting(self) -> bool:
        """Whether processes are being started and none is ready yet."""
        return self._pool.starting

    def pids(self) -> list[int]:
        """Process ids of the living workers."""
        return self._pool.pids()

    def close(self) -> None:
        """Kill the workers; pending calls fail. Safe to call twice."""
        self._coroutines.close()
        self._pool.close()


def _error(call: Call, fault: Fault) -> EnvironmentFailedError:
    what, detail = call.what, fault.detail
    if fault.kind == "timeout":
        return EnvironmentTimeoutError(f"{what} {detail}")
    text = {
        "raised": f"{what}: {detail}",
        "memory": f"{what}: {detail}",
        "died": f"{what}: its process ended, {detail}",
        "construct": f"the environment cannot be constructed: {detail}",
        "start": f"its process did not start: {detail}",
        "closed": detail,
    }
    failed = EnvironmentFailedError(text[fault.kind])
    failed.in_call = fault.kind in ("raised", "memory", "died")
    return failed
