"""Worker processes for environments; a call that hangs is killed together with its process.

The caller keeps the states of conversations between calls, so that a worker's death loses only the
conversation of its current call. A call is never repeated, because it may have had side effects.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from concurrent.futures import Future

from rlvr_core.api import Json
from rlvr_core.api.services import ComponentSpec, Fault, PoolCall, ProcessPool
from rlvr_core.builtin.environments.worker import Call


class EnvironmentFailedError(Exception):
    """A call of an environment failed; the message says why.

    Attributes:
        in_call: Whether the call itself failed; otherwise it was never made.
    """

    in_call = True


class EnvironmentTimeoutError(EnvironmentFailedError):
    """A call took too long, and its process was killed."""


class EnvironmentPool:
    """Makes calls of environments in worker processes. Methods may be called from any thread.

    Args:
        specs: How to construct each environment, by full name.
        workers: Number of processes.
        timeout: Seconds a call may take, unless its environment has a ``time_limit``.
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
        """Submit a call; its future gets the answer, or an ``EnvironmentFailedError``.

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
        """Whether processes are being started and none is ready yet."""
        return self._pool.starting

    def pids(self) -> list[int]:
        """Process ids of the living workers."""
        return self._pool.pids()

    def close(self) -> None:
        """Kill the workers; pending calls fail. Safe to call twice."""
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
