"""The remote end of a verifier pool on Ray: an actor around a ``VerifierPool``.

Nothing is raised to Ray: each answer is a ``Reply``, so an exception of Ray always means that the
actor is lost. The worker processes send verdicts as JSON, so the run unpickles only objects that
this actor made.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_cluster.ray.host import join_run
from rlvr_cluster.ray.messages import Reply
from rlvr_core.api import Completion, MachineError, Problem, RlvrError, RunError
from rlvr_core.toolkit import VerifierPool, VerifierSpec


@dataclass(frozen=True, slots=True)
class PoolArgs:
    """The arguments of an actor's pool.

    Attributes:
        verifiers: Target and options of each verifier, by the name of its verdicts.
        workers: Number of processes.
        timeout: Seconds one verdict may take.
        memory_mb: MiB a worker may take.
        path: The run's module path, because verifiers may be files of the user.
        environment: Variables to set.
        version: The run's version of rlvr-core.
    """

    verifiers: Mapping[str, tuple[str, Mapping[str, Any]]]
    workers: int
    timeout: float
    memory_mb: int
    path: Sequence[str]
    environment: Mapping[str, str]
    version: str


class VerifierActor:
    """A verifier pool on some node; an asynchronous Ray actor."""

    def __init__(self) -> None:
        self._pool: Any = None

    async def start(self, args: PoolArgs) -> Reply:
        """Start the workers; the reply says where they are."""
        try:
            self._pool = _started(args)
        except RlvrError as error:
            return Reply("failed", error)
        except Exception as error:
            return Reply(
                "failed",
                MachineError(
                    f"verifiers cannot be started on {platform.node()}: "
                    f"{type(error).__name__}: {error}",
                    where="verify.pool",
                    remedy="install the same packages on every node of the cluster",
                ),
            )
        return Reply("done", f"{platform.node()}, process {os.getpid()}")

    async def judge(
        self, problem: Problem, completions: Sequence[Completion], names: Sequence[str]
    ) -> Reply:
        """Judge the completions of one problem; the reply holds their verdicts in order."""
        try:
            verdicts = self._pool.submit_group(problem, completions, names)
            return Reply("done", await asyncio.wrap_future(verdicts))
        except Exception as error:
            if not isinstance(error, RlvrError):
                error = RunError(f"a verifier actor failed: {type(error).__name__}: {error}")
            return Reply("failed", error)

    async def stats(self) -> Any:
        """Return the counts and latencies so far; see ``VerifierPool.stats``."""
        return self._pool.stats()


def _started(args: PoolArgs) -> Any:
    join_run(args.version, args.environment, whose="the run", where="verify.pool")
    sys.path += [place for place in args.path if place not in sys.path and Path(place).is_dir()]

    specs = {name: VerifierSpec(*spec) for name, spec in args.verifiers.items()}
    return VerifierPool(specs, workers=args.workers, timeout=args.timeout, memory_mb=args.memory_mb)
