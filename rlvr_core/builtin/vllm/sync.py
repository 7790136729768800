"""One transaction gives vLLM servers new weights, and sees that they hold them and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlvr_core.api import RunError
from rlvr_core.builtin.vllm.client import FaultError, GoneError
from rlvr_core.builtin.vllm.lora import no_place
from rlvr_core.builtin.vllm.pool import Pool, Server
from rlvr_core.builtin.vllm.process import VERBOSE

if TYPE_CHECKING:
    from rlvr_core.api import Generation
    from rlvr_core.builtin.vllm.outgoing import Snapshot
    from rlvr_core.builtin.vllm.probe import Probe
    from rlvr_core.builtin.vllm.server_lora import AdapterFolder


@dataclass(slots=True)
class Sent:
    """What servers should hold.

    Attributes:
        label: Of the weights, unique to this run and version.
        fingerprint: Of the stream that brought them; None for those a server starts with.
    """

    label: str
    fingerprint: str | None = None


@dataclass(slots=True)
class Weights:
    """The weights that servers should hold, and how they get them. Lives on the pool's loop.

    Attributes:
        sent: What they should hold.
        snapshot: Files with it, for a server that comes back; None without.
        adapter: The adapter, in a run that sends nothing else.
        probe: A prompt every server is asked to go on with, to see whose weights it has.
        seconds: Any one step of it may take.
        lock: Held while servers are given weights.
        epoch: Changes at the beginning and the end of a sync.
    """

    sent: Sent
    snapshot: Snapshot | None
    probe: Probe
    seconds: float
    adapter: AdapterFolder | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    epoch: int = 0

    async def sync(
        self,
        pool: Pool,
        living: Sequence[Server],
        give: Callable[[Sequence[Server]], Awaitable[None]] | None,
        compare: Callable[[dict[str, Generation]], None],
    ) -> None:
        """Give the new weights to servers and see that they hold them, while the lock is held.

        A server that goes meanwhile is brought back with the new ones.

        Args:
            pool: Its jobs.
            living: The servers.
            give: Sends to all of them at once; None to let each read the snapshot's files.
            compare: Called in another thread with each server's answer to the probe; raises
                ``RlvrError`` if one cannot come from these weights.

        Raises:
            RlvrError: If a living server did not take them.
        """
        if give is not None:
            opened = await asyncio.gather(
                *(self._took(pool, one, self._open(one)) for one in living)
            )
            living = [one for one, there in zip(living, opened, strict=True) if there]
            await give(living)
        answers: dict[str, Generation] = {}

        async def take(server: Server) -> None:
            await (self._from_files(server) if give is None else self._settle(server))
            answers[server.name] = await self.probe.ask(
                server.client, self.sent.label, self.seconds
            )

        await asyncio.gather(*(self._took(pool, one, take(one)) for one in living))
        await asyncio.to_thread(compare, answers)
        for one in living:
            if one.name in answers:
                one.strange = False
                pool.trust(one)

    async def catch_up(self, server: Server) -> None:
        """Give a server that just started what the others hold, and see that it does.

        Raises:
            GoneError: If it is gone, or has to wait for the next sync.
            FaultError: If it says that it could not do it.
            RunError: If it then answers as if it held others.
        """
        async with self.lock:
            if self.sent.fingerprint is None:
                held = await server.client.weight_version(seconds=self.seconds)
                if held not in ("default", self.sent.label):
                    server.strange = True
                    return
                # it was given none yet: it holds the run's model
                await self._post(server, "/update_weight_version", {"new_version": self.sent.label})
                return
            if self.adapter is None and (self.snapshot is None or not self.snapshot.files):
                raise GoneError("it has to wait for the next weights")
            await self._from_files(server)
            answer = await self.probe.ask(server.client, self.sent.label, self.seconds)
            self.probe.compare_known(server.name, answer)

    async def _from_files(self, server: Server) -> None:
        """The whole transaction with one server, from the files that are kept."""
        await self._open(server)
        if self.adapter is not None:
            await self._adapter_from(server, str(self.adapter.current))
            return
        assert self.snapshot is not None
        await self._post(server, "/start_weight_update")
        update = {"update_info": {"files": self.snapshot.files}}
        await self._post(server, "/update_weights", update)
        await self._post(server, "/finish_weight_update", {"weight_version": self.sent.label})
        await self._settle(server)

    async def _adapter_from(self, server: Server, folder: str) -> None:
        """The part of it between pausing and resuming where an adapter is sent alone."""
        for worker in await server.client.rpc("rlvr_load_adapter", folder, seconds=self.seconds):
            if worker["unused"]:
                raise FaultError(500, no_place(worker["unused"]))
        await self._post(server, "/update_weight_version", {"new_version": self.sent.label})
        await self._settle(server)

    async def _open(self, server: Server) -> None:
        """Have a server stop. Its unfinished work goes on later, with keys and values made anew."""
        await self._post(server, "/pause", mode="keep", clear_cache="true")

    async def _settle(self, server: Server) -> None:
        """See that a server took the new weights and kept nothing of the old, and let it work."""
        for worker in await server.client.rpc("rlvr_received", seconds=self.seconds):
            if worker["fingerprint"] != self.sent.fingerprint:
                raise FaultError(500, f"other weights arrived than were sent ({worker})")
        # keys and values of the old weights must not outlive them (T19)
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

    async def _took(self, pool: Pool, server: Server, step: Awaitable[None]) -> bool:
        """Whether a server took a step of a sync; if not it is gone, and will be seen to.

        Raises:
            RunError: If it lives and refuses.
        """
        try:
            await step
        except (GoneError, FaultError) as error:
            if isinstance(error, FaultError) and await server.client.answers():
                version = self.sent.label.rpartition("/")[2]
                raise RunError(
                    f"weight sync to version {version}: {server.name}: {error}", remedy=VERBOSE
                ) from error
            pool.lose(server)
            server.alarm.set()
            return False
        return True
