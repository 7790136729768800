"""What a process does in a weight sync with vLLM servers: one leads it, the others gather along."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import RlvrError, RunError
from rlvr_core.builtin.vllm.outgoing import Meta, Outgoing, n_bytes
from rlvr_core.builtin.vllm.process import VERBOSE, first_line
from rlvr_core.builtin.vllm.sync import Sent
from rlvr_core.engines.sync import trainer_logprobs

if TYPE_CHECKING:
    from rlvr_core.api import EngineContext, WeightSource
    from rlvr_core.builtin.vllm.fleet import Fleet
    from rlvr_core.builtin.vllm.nccl import NcclSender
    from rlvr_core.builtin.vllm.pool import Pool, Server
    from rlvr_core.engines.loop_thread import LoopThread


@dataclass(slots=True)
class Giving:
    """This process's part.

    Attributes:
        context: The run's, for the precision.
        thread: Where the fleet lives.
        pool: The servers' jobs.
        fleet: The servers, and the weights they should hold.
        nccl: Sends from GPU to GPU; None where weights go through files.
        alone: Whether an adapter is sent without the model.
        meta: Of every tensor, once it is known.
    """

    context: EngineContext
    thread: LoopThread
    pool: Pool
    fleet: Fleet
    nccl: NcclSender | None
    alone: bool
    meta: list[Meta] | None = None

    def lead(self, version: int, label: str, source: WeightSource) -> None:
        """Give the servers new weights, and see that they hold them.

        Raises:
            RlvrError: If any part of it failed.
        """
        try:
            with torch.no_grad():
                self._give(version, label, source)
        except RlvrError:
            raise
        except Exception as error:
            what = f"weight sync to version {version} failed: {first_line(error)}"
            raise RunError(what, remedy=VERBOSE) from error

    def along(self, source: WeightSource) -> None:
        """Take part in gathering a sharded policy, as often as the leader does."""
        if self.alone:
            source.adapter()
            return
        outgoing = Outgoing(source, self.context.dtype)
        self.meta = self.meta or outgoing.metadata()
        for _ in outgoing:
            pass

    def _give(self, version: int, label: str, source: WeightSource) -> None:
        weights = self.fleet.weights
        give = None
        if weights.adapter is not None:
            weights.sent = Sent(label, weights.adapter.write(source.adapter()))
        else:
            give = self._outgoing(label, source)
        module = None if source.sharded else source.module
        ours = None
        if module is not None:
            ours = partial(trainer_logprobs, module, dtype=self.context.dtype)
        compare = partial(weights.probe.compare, version=version, trainer=ours)
        living = self._on_loop(self.fleet.participants())
        self._on_loop(weights.sync(self.pool, living, give, compare))

    def _outgoing(
        self, label: str, source: WeightSource
    ) -> Callable[[Sequence[Server]], Awaitable[None]] | None:
        """Write whole weights into the snapshot's files; or what sends them over NCCL."""
        weights, nccl = self.fleet.weights, self.nccl
        outgoing = Outgoing(source, self.context.dtype, weights.snapshot)
        meta = self.meta = self.meta or outgoing.metadata()
        if weights.snapshot is not None:
            weights.snapshot.place(n_bytes(meta))
        if nccl is None:
            for _ in outgoing:
                pass
            weights.sent = Sent(label, outgoing.fingerprint.digest())
            return None

        async def give(servers: Sequence[Server]) -> None:
            if servers:
                await asyncio.to_thread(nccl.send, servers, outgoing, meta, label)
            else:  # all are being started again: the copy of the weights is for them
                for _ in outgoing:
                    pass
            weights.sent = Sent(label, outgoing.fingerprint.digest())

        return give

    def _on_loop(self, work: Any) -> Any:
        """The result of a coroutine; each of its waits has a deadline of its own."""
        return self.thread.spawn(work).result()
