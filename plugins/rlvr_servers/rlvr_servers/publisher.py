"""Sends new weights to vLLM servers in one transaction, and verifies what they hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor

from rlvr_core.api import (
    EngineContext,
    Generation,
    Json,
    RlvrError,
    RunError,
    TensorMeta,
    TransportTraits,
    WeightSource,
    WeightTransport,
    one_line,
    traits_of,
)
from rlvr_core.engines.transport import ChosenTransport
from rlvr_core.engines.vllm.files import FILES, Files
from rlvr_core.engines.vllm.probe import trainer_logprobs
from rlvr_core.engines.vllm.process import VERBOSE
from rlvr_servers.client import FaultError, GoneError, Probe
from rlvr_servers.fingerprint import Fingerprint
from rlvr_servers.pool import LoopThread, Server, ServerPool

_PAUSE = 1.0
"""Seconds between two checks of the trainer's weights."""


@dataclass(slots=True)
class SentWeights:
    """The weights that were sent last.

    Attributes:
        label: Name of the weights, unique to this run and version.
        fingerprint: Fingerprint of the stream that brought them; None for a server's first weights.
        transport: How a server that comes back gets them; None if it has to wait for the next.
        messages: Messages for the receiving end of that transport, in order.
    """

    label: str
    fingerprint: str | None = None
    transport: ChosenTransport | None = None
    messages: Sequence[Json] = ()


@dataclass(slots=True)
class ServerWeights:
    """The weights that servers should hold, and their transfer. Runs on the pool's loop.

    Attributes:
        sent: What they should hold.
        probe: A prompt every server is asked to go on with, to see whose weights it has.
        seconds: Any one step of a transaction may take.
        keep: Keeps a copy of the trainer's weights if they still are those that were sent, and
            returns the messages that bring it; None where nobody can be given one between syncs.
        lock: Held while servers are given weights.
        epoch: Changes at the beginning and the end of a sync.
    """

    sent: SentWeights
    probe: Probe
    seconds: float
    keep: Callable[[str], Sequence[Json] | None] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    epoch: int = 0

    async def open(self, pool: ServerPool, servers: Sequence[Server]) -> list[Server]:
        """Pause servers and start a weight update; return the servers that did."""
        return await self._apply_to_servers(pool, servers, self._open)

    async def update(
        self, pool: ServerPool, servers: Sequence[Server], updates: dict[str, dict[str, Json]]
    ) -> list[Server]:
        """Send each server, by name, its message of a weight update; return those that took it."""
        return await self._apply_to_servers(
            pool, servers, lambda server: self._update(server, updates[server.name])
        )

    async def finish(
        self,
        pool: ServerPool,
        servers: Sequence[Server],
        compare: Callable[[dict[str, Generation]], None],
        *,
        opened: bool,
    ) -> None:
        """Verify that servers hold the new weights, with the lock held, and resume them.

        A server that goes meanwhile is brought back with the new ones.

        Args:
            pool: Sends requests to the servers.
            servers: The servers.
            compare: Called in another thread with each server's answer to the probe; raises
                ``RlvrError`` if one cannot come from these weights.
            opened: Whether they are open and have received everything; else each goes through the
                whole transaction now.

        Raises:
            RlvrError: If a living server did not take them.
        """
        answers: dict[str, Generation] = {}

        async def take(server: Server) -> None:
            await (self._settle(server) if opened else self._transaction(server))
            answers[server.name] = await self.probe.ask(
                server.client, self.sent.label, self.seconds
            )

        await self._apply_to_servers(pool, servers, take)
        await asyncio.to_thread(compare, answers)
        for server in servers:
            if server.name in answers:
                server.holds_other_weights = False
                pool.mark_ready(server)

    async def catch_up(self, server: Server) -> None:
        """Send a newly started server the current weights, and verify them.

        Raises:
            GoneError: If it is gone, or has to wait for the next sync.
            FaultError: If it says that it could not do it.
            RunError: If it then answers as if it held others.
        """
        until = time.monotonic() + self.seconds
        while not await self._caught_up(server):
            if time.monotonic() > until:
                raise GoneError("it has to wait for the next weights")
            await asyncio.sleep(_PAUSE)  # the trainer is in the middle of an update

    async def _caught_up(self, server: Server) -> bool:
        """Send a server the current weights; return False if no copy is available now."""
        async with self.lock:
            if self.sent.fingerprint is None:
                held = await server.client.weight_version(seconds=self.seconds)
                if held not in ("default", self.sent.label):
                    server.holds_other_weights = True
                    return True
                # nothing was sent yet: it holds the run's initial model
                await self._post(server, "/update_weight_version", {"new_version": self.sent.label})
                return True
            if self.sent.transport is None:
                if self.keep is None:
                    raise GoneError("it has to wait for the next weights")
                messages = await asyncio.to_thread(self.keep, self.sent.fingerprint)
                if messages is None:
                    return False
                self.sent.transport, self.sent.messages = FILES, messages
            await self._transaction(server)
            answer = await self.probe.ask(server.client, self.sent.label, self.seconds)
            self.probe.compare_known(server.name, answer)
            return True

    async def _transaction(self, server: Server) -> None:
        """Do the whole transaction with one server, from the kept copy."""
        assert self.sent.transport is not None
        await self._open(server)
        for message in self.sent.messages:
            await self._update(server, update_of(self.sent.transport, message, server.first_worker))
        await self._settle(server)

    async def _open(self, server: Server) -> None:
        """Pause a server. Unfinished requests continue later, with recomputed keys and values."""
        await self._post(server, "/pause", mode="keep", clear_cache="true")
        await self._post(server, "/start_weight_update")

    async def _update(self, server: Server, update: dict[str, Json]) -> None:
        await self._post(server, "/update_weights", {"update_info": update})

    async def _settle(self, server: Server) -> None:
        """Make a server use the received weights, verify them and that no old state is left."""
        await self._post(server, "/finish_weight_update", {"weight_version": self.sent.label})
        for worker in await server.client.rpc("rlvr_received", seconds=self.seconds):
            if worker["fingerprint"] != self.sent.fingerprint:
                raise FaultError(500, f"other weights arrived than were sent ({worker})")
        # keys and values of the old weights must not outlive them
        if not (await self._post(server, "/reset_prefix_cache"))["success"]:
            raise FaultError(500, "it did not reset its prefix cache")
        await self._post(server, "/resume")
        held = await server.client.weight_version(seconds=self.seconds)
        if held != self.sent.label:
            raise FaultError(500, f"it says its weights are '{held}', not '{self.sent.label}'")

    async def _post(
        self, server: Server, path: str, body: dict[str, Any] | None = None, **query: str
    ) -> Any:
        return await server.client.call(
            "POST", path, seconds=self.seconds, body=body or {}, **query
        )

    async def _apply_to_servers(
        self, pool: ServerPool, servers: Sequence[Server], step: Callable[[Server], Awaitable[None]]
    ) -> list[Server]:
        """Do a step of a sync with every server; return the successful ones, mark others lost.

        Raises:
            RunError: If a server that still answers refuses the step.
        """

        async def took(server: Server) -> bool:
            try:
                await step(server)
            except (GoneError, FaultError) as error:
                if isinstance(error, FaultError) and await server.client.answers():
                    version = self.sent.label.rpartition("/")[2]
                    raise RunError(
                        f"weight sync to version {version}: {server.name}: {error}", remedy=VERBOSE
                    ) from error
                pool.mark_lost(server)
                server.check_now.set()
                return False
            return True

        results = await asyncio.gather(*(took(server) for server in servers))
        return [server for server, done in zip(servers, results, strict=True) if done]


class Outgoing:
    """One pass over the trainer's weights, as they are sent; see ``OutgoingWeights``.

    Matrices are rounded to the run's precision on this side, as vLLM would on its own: half the
    bytes of float32 masters. Vectors go as they are; some models keep those in float32.

    Args:
        source: The trainer's weights.
        dtype: Precision of the run.
        tensors: What is known to come; None to ask, for which a sharded policy is gathered: every
            process has to ask.
        copy: Where they are also written as they are sent; None for nowhere.
    """

    def __init__(
        self,
        source: WeightSource,
        dtype: torch.dtype,
        tensors: Sequence[TensorMeta] | None = None,
        copy: Files | None = None,
    ) -> None:
        self._source, self._dtype, self.copy = source, dtype, copy
        self.tensors: Sequence[TensorMeta] = tensors or [
            TensorMeta(name, dtype if _is_matrix(tensor) else tensor.dtype, tuple(tensor.shape))
            for name, tensor in source.tensors()
        ]
        self.fingerprint = Fingerprint()

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Names and tensors; afterwards ``fingerprint`` and the copy are complete."""
        tensors = self._once()
        return iter(tensors if self.copy is None else self.copy.keep(self, tensors))

    def _once(self) -> Iterator[tuple[str, Tensor]]:
        self.fingerprint = Fingerprint()
        for name, tensor in self._source.tensors():
            sent = tensor.to(self._dtype) if _is_matrix(tensor) else tensor
            self.fingerprint.add(name, sent)
            yield name, sent


def _is_matrix(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.ndim > 1


def update_of(transport: ChosenTransport, message: Json, first_worker: int) -> dict[str, Json]:
    """One message of a transport, as the workers of a server get it; see ``worker.Update``."""
    return {"transport": asdict(transport), "message": message, "first_worker": first_worker}


class ServerLink:
    """The workers of all servers, numbered in order, as a transport sees them; ``TransportLink``.

    Args:
        publisher: Of the sync.
        servers: Those that are there.
    """

    def __init__(self, publisher: WeightPublisher, servers: Sequence[Server]) -> None:
        self._publisher = publisher
        self.servers = list(servers)
        self.opened = False
        self.messages: list[Json] = []
        members: list[str] = []
        for server in servers:
            server.first_worker = len(members)
            members += [f"{server.name} {server.incarnation} {w}" for w in range(server.world)]
        self.members = tuple(members)
        self.remote_hosts = tuple(
            str(urlsplit(server.name).hostname) for server in servers if server.process is None
        )

    @property
    def receivers(self) -> int:
        """Workers of all servers."""
        return len(self.members)

    def deliver(self, message: Json) -> None:
        """Have all workers receive it, now or, from a lasting transport, when it has sent."""
        self.messages.append(message)
        if self._publisher.lasting:
            return
        weights, pool = self._publisher.weights, self._publisher.pool
        run = self._publisher.thread.run
        if not self.opened:
            self.servers, self.opened = run(weights.open(pool, self.servers)), True
        updates = {
            server.name: update_of(self._publisher.chosen, message, server.first_worker)
            for server in self.servers
        }
        self.servers = run(weights.update(pool, self.servers, updates))


class WeightPublisher:
    """A process's part in a sync: one leads it, the others gather with it.

    Args:
        context: The run's, for the precision.
        thread: Where the servers' clients live.
        pool: The servers' jobs.
        weights: What the servers should hold.
    """

    def __init__(
        self,
        context: EngineContext,
        thread: LoopThread,
        pool: ServerPool,
        weights: ServerWeights,
    ) -> None:
        self._context, self.thread, self.pool, self.weights = context, thread, pool, weights
        self._transport: WeightTransport | None = None
        self._copy: Files | None = None
        self._tensors: Sequence[TensorMeta] | None = None
        self._source: WeightSource | None = None

    def use(self, chosen: ChosenTransport, copy: Files | None) -> None:
        """Send whole weights by a transport.

        Args:
            chosen: The transport.
            copy: Where a copy is kept for servers that come back, if the transport keeps none.
                It is made when one does, of the weights that the trainer still has: no sync waits
                for a copy to host memory.
        """
        self.chosen = chosen
        self._transport = chosen.make()
        self.lasting = traits_of(self._transport, TransportTraits).lasting
        self._copy = None if self.lasting else copy
        if self._copy is not None:
            self.weights.keep = self._keep

    def lead(
        self,
        version: int,
        label: str,
        source: WeightSource,
        participants: Callable[[], Awaitable[list[Server]]],
    ) -> None:
        """Give the servers new weights, and see that they hold them.

        Args:
            version: Of the weights.
            label: What servers are to call them.
            source: The weights.
            participants: The servers that are there to take them.

        Raises:
            RlvrError: If any part of it failed.
        """
        try:
            with torch.no_grad():
                link = self._send(label, source, participants)
                module = None if source.sharded else source.module
                ours = None
                if module is not None:
                    ours = partial(trainer_logprobs, module, dtype=self._context.dtype)
                compare = partial(self.weights.probe.compare, version=version, trainer=ours)
                finish = self.weights.finish(self.pool, link.servers, compare, opened=link.opened)
                self.thread.run(finish)
        except RlvrError:
            raise
        except Exception as error:
            what = f"weight sync to version {version} failed: {one_line(error)}"
            raise RunError(what, remedy=VERBOSE) from error

    def gather_along(self, source: WeightSource) -> None:
        """Take part in gathering a sharded policy, as often as the leader does."""
        outgoing = Outgoing(source, self._context.dtype, self._tensors)
        self._tensors = outgoing.tensors
        for _ in outgoing:
            pass

    def close(self) -> None:
        """Release the transport, and remove the copy."""
        if self._transport is not None:
            self._transport.close()
        if self._copy is not None:
            self._copy.close()

    def _send(
        self,
        label: str,
        source: WeightSource,
        participants: Callable[[], Awaitable[list[Server]]],
    ) -> ServerLink:
        """Send whole weights by the transport; the servers that are still there."""
        self.weights.sent = SentWeights(label, "not sent yet")
        assert self._transport is not None
        outgoing = Outgoing(source, self._context.dtype, self._tensors)
        self._tensors = outgoing.tensors
        servers: list[Server] = self.thread.run(participants())
        # shards cannot be gathered between syncs; a server that is starting will ask at once
        missing = len(servers) < sum(not server.given_up for server in self.pool.servers)
        outgoing.copy = self._copy if source.sharded or missing else None
        self._source = None if source.sharded else source
        link = ServerLink(self, servers)
        if servers or self.lasting:
            self._transport.send(outgoing, link)
        else:  # all are being started again: the copy of the weights is for them
            for _ in outgoing:
                pass
        sent = SentWeights(label, outgoing.fingerprint.digest())
        if self.lasting:
            sent.transport, sent.messages = self.chosen, link.messages
        elif outgoing.copy is not None:
            sent.transport, sent.messages = FILES, [outgoing.copy.message()]
        self.weights.sent = sent
        return link

    def _keep(self, fingerprint: str) -> Sequence[Json] | None:
        """See ``ServerWeights.keep``; called from another thread, while the trainer may train."""
        if self._source is None or self._copy is None:
            return None
        with torch.no_grad():
            outgoing = Outgoing(self._source, self._context.dtype, self._tensors, self._copy)
            for _ in outgoing:
                pass
        # bit for bit those that were sent, or some were updated before or meanwhile
        same = outgoing.fingerprint.digest() == fingerprint
        return [self._copy.message()] if same else None
