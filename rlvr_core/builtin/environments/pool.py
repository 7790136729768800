"""Worker processes for environments: a call that hangs is ended, with the process it hangs in.

States of conversations are kept by the caller between calls, so that no conversation is lost with a
worker but the one whose call ended it. A call is never made twice: it may have changed the world.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from concurrent.futures import Future

from rlvr_core.api import Json
from rlvr_core.api.services import ComponentSpec, Fault, PoolCall, ProcessPool
from rlvr_core.builtin.environments.worker import Call


class EnvironmentFailedError(Exception):
    """A call of an environment that gave no answer; the message says why."""


class EnvironmentTimeoutError(EnvironmentFailedError):
    """A call that took too long; its process was killed."""


class EnvironmentPool:
    """Makes calls of environments in processes of its own. Methods may be called from any thread.

    Args:
        specs: How to construct each environment, by full name.
        workers: Processes.
        timeout: Seconds a call may take, unless its environment has a ``time_limit`` of its own.
    """

    def __init__(self, specs: Mapping[str, ComponentSpec], *, workers: int, timeout: float) -> None:
        self._limits = {name: spec.time_limit(timeout) for name, spec in specs.items()}
        self._pool = ProcessPool(
            "pool of environments",
            specs,
            "rlvr_core.builtin.environments.worker:answer",
            workers=workers,
            lazy=True,
        )

    def submit(self, call: Call) -> Future[dict[str, Json]]:
        """Make a call; its future has the answer, or an ``EnvironmentFailedError``.

        Raises:
            RunError: If the pool is closed.
        """
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

    @property
    def starting(self) -> bool:
        """Whether processes are being started and none is there yet."""
        return self._pool.starting

    def pids(self) -> list[int]:
        """Process ids of the workers alive now."""
        return self._pool.pids()

    def close(self) -> None:
        """Kill the workers; calls still awaited fail. Safe to call twice."""
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
    return EnvironmentFailedError(text[fault.kind])
