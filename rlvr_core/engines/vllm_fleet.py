"""vLLM servers over the length of a run: started, watched, given weights, brought back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlvr_core.engines.vllm_client import FaultError, GoneError
from rlvr_core.engines.vllm_pool import Pool, Server
from rlvr_core.engines.vllm_probe import Probe
from rlvr_core.engines.vllm_process import VERBOSE
from rlvr_core.engines.vllm_serve import REMEDY
from rlvr_core.errors import MachineError, RlvrError, RunError

if TYPE_CHECKING:
    from rlvr_core.engines.vllm_outgoing import Snapshot

BEAT = 2.0
"""Seconds between two looks at a server."""
FIRST_PAUSE = 1.0
"""Seconds before the first restart; doubled from one to the next."""
_POLL = 0.2
_LONGEST_PAUSE = 30.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for what.

    Attributes:
        start: Seconds for a server to answer after its start, and to take weights.
        silence: Seconds an engine may say nothing before it counts as hung.
        restarts: How often a server is started again.
    """

    start: float
    silence: float
    restarts: int


class StartError(Exception):
    """A server did not come up."""


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
class Fleet:
    """The servers of a run, as one process sees them. Lives on the pool's loop.

    Attributes:
        pool: Jobs.
        patience: How long is waited.
        check: Raises ``RlvrError`` if a server's account of itself does not fit the run.
        leads: Whether this process starts the servers and gives them weights.
        snapshot: Files with the last weights, for a server that comes back; None without.
        sent: What servers should hold.
        probe: A prompt every server is asked to go on with, to see whose weights it has.
        events: What happened, for people, until it is taken.
    """

    pool: Pool
    patience: Patience
    check: Callable[[Server, dict[str, Any]], None]
    leads: bool
    snapshot: Snapshot | None
    sent: Sent
    probe: Probe
    events: list[str] = field(default_factory=list)
    _weights: asyncio.Lock = field(default_factory=asyncio.Lock)
    _epoch: int = 0

    @property
    def servers(self) -> Sequence[Server]:
        """All of them."""
        return self.pool.servers

    # -- starting --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bring every server up, and begin to watch.

        Raises:
            MachineError: If one does not come up.
        """
        try:
            await asyncio.gather(*(self._first(server) for server in self.servers))
        except StartError as error:
            raise MachineError(str(error), where="engine", remedy=REMEDY) from error
        for server in self.servers:
            self.pool.spawn(self._watch(server))

    async def _first(self, server: Server) -> None:
        if self.leads:
            await self._bring_up(server)
        else:
            await self._until(server, lambda: self._healthy(server), self.patience.start)
            self.pool.trust(server)

    async def _bring_up(self, server: Server) -> None:
        """Start a server where that is ours to do, wait until it answers, give it weights.

        Raises:
            StartError: If that fails.
            RlvrError: If it is not a server for this run.
        """
        if server.process is not None:
            server.process.start()
        seconds = self.patience.start
        await self._until(server, lambda: self._answers(server), seconds)
        try:
            facts = (await server.client.rpc("rlvr_describe", seconds=seconds))[0]
            self.check(server, facts)
            server.world = int(facts["world"])
            server.born += 1
            async with self._weights:
                await self._catch_up(server)
        except (GoneError, FaultError) as error:
            raise StartError(f"{server.name}: {error}") from error
        if not server.strange:
            self.pool.trust(server)

    async def _until(
        self, server: Server, there: Callable[[], Awaitable[str | None]], seconds: float
    ) -> None:
        """Wait until ``there`` has nothing to say against a server.

        Raises:
            StartError: If its process ends, or it takes longer than ``seconds``.
        """
        until = time.monotonic() + seconds
        while (reason := await there()) is not None:
            ended = server.process.ended() if server.process is not None else None
            told = " | ".join(server.process.last_words()) if server.process is not None else ""
            if ended is not None:
                raise StartError(f"{server.name} {ended} at its start: {told}")
            if time.monotonic() > until:
                raise StartError(
                    f"{server.name} did not come up within {seconds:g} s: {reason}"
                    + (f"; its last words: {told}" if told else "")
                )
            await asyncio.sleep(_POLL)

    async def _answers(self, server: Server) -> str | None:
        try:
            await server.client.call("GET", "/health", seconds=BEAT)
        except (GoneError, FaultError) as error:
            return str(error)
        return None

    async def _catch_up(self, server: Server) -> None:
        """Give a server that just started what the others hold, and see that it does."""
        seconds = self.patience.start
        if self.sent.fingerprint is None:
            held = await server.client.weight_version(seconds=seconds)
            if held not in ("default", self.sent.label):
                server.strange = True
                return
            await self._label(server)  # it was given none yet: it holds the run's model
            return
        if self.snapshot is None or not self.snapshot.files:
            raise GoneError("it has to wait for the next weights")
        await self.give_files(server)
        answer = await self.probe.ask(server.client, self.sent.label, seconds)
        self.probe.compare_known(server.name, answer)

    async def _label(self, server: Server) -> None:
        body = {"new_version": self.sent.label}
        seconds = self.patience.start
        await server.client.call("POST", "/update_weight_version", seconds=seconds, body=body)

    # -- weights ---------------------------------------------------------------------------------

    async def hold(self) -> None:
        """Look at no server, and bring none back with the old weights, until ``release``."""
        await self._weights.acquire()
        self._epoch += 1

    async def release(self) -> None:
        """Go on watching."""
        self._epoch += 1
        self._weights.release()

    async def participants(self) -> list[Server]:
        """Servers that are there to take new weights.

        One of ours that is being started again is not among them: it takes them when it is up.
        """
        found = []
        for server in self.servers:
            foreign = server.process is None and not server.given_up
            if server.ready or server.strange or (foreign and await self._answers(server) is None):
                found.append(server)
        return found

    async def sync(
        self,
        living: Sequence[Server],
        give: Callable[[Sequence[Server]], Awaitable[None]] | None,
        compare: Callable[[dict[str, Any]], None],
    ) -> None:
        """Give the new weights to servers and see that they hold them; between hold and release.

        A server that goes meanwhile is brought back with the new ones.

        Args:
            living: The servers.
            give: Sends to all of them at once; None to let each read the snapshot's files.
            compare: Called in another thread with each server's answer to the probe; raises
                ``RlvrError`` if one cannot come from these weights.

        Raises:
            RlvrError: If a living server did not take them.
        """
        if give is not None:
            opened = await asyncio.gather(*(self._took(one, self.open(one)) for one in living))
            living = [one for one, there in zip(living, opened, strict=True) if there]
            await give(living)
        answers: dict[str, Any] = {}

        async def take(server: Server) -> None:
            await (self.give_files(server) if give is None else self.settle(server))
            answers[server.name] = await self.probe.ask(
                server.client, self.sent.label, self.patience.start
            )

        await asyncio.gather(*(self._took(one, take(one)) for one in living))
        await asyncio.to_thread(compare, answers)
        for one in living:
            if one.name in answers:
                one.strange = False
                self.pool.trust(one)

    async def _took(self, server: Server, step: Awaitable[None]) -> bool:
        """Whether a server took a step of a sync; if not it is gone, and will be seen to.

        Raises:
            RunError: If it lives and refuses.
        """
        try:
            await step
        except (GoneError, FaultError) as error:
            if isinstance(error, FaultError) and await self._answers(server) is None:
                version = self.sent.label.rpartition("/")[2]
                raise RunError(
                    f"weight sync to version {version}: {server.name}: {error}", remedy=VERBOSE
                ) from error
            self.pool.lose(server)
            server.alarm.set()
            return False
        return True

    async def give_files(self, server: Server) -> None:
        """The whole transaction with one server, from the snapshot's files.

        Raises:
            GoneError: If it is gone.
            FaultError: If it says that it could not do it.
        """
        assert self.snapshot is not None
        update = {"update_info": {"files": self.snapshot.files}}
        await self.open(server)
        await self._post(server, "/start_weight_update")
        await self._post(server, "/update_weights", update)
        await self._post(server, "/finish_weight_update", {"weight_version": self.sent.label})
        await self.settle(server)

    async def open(self, server: Server) -> None:
        """Have a server finish what it does, and begin nothing new."""
        await self._post(server, "/pause", mode="wait", clear_cache="true")

    async def settle(self, server: Server) -> None:
        """See that a server took the new weights and kept nothing of the old, and let it work.

        Raises:
            FaultError: If it did not.
        """
        for worker in await server.client.rpc("rlvr_received", seconds=self.patience.start):
            if worker["fingerprint"] != self.sent.fingerprint:
                raise FaultError(500, f"other weights arrived than were sent ({worker})")
        # keys and values of the old weights must not outlive them (T19)
        if not (await self._post(server, "/reset_prefix_cache"))["success"]:
            raise FaultError(500, "it did not reset its prefix cache")
        await self._post(server, "/resume")
        held = await server.client.weight_version(seconds=self.patience.start)
        if held != self.sent.label:
            raise FaultError(500, f"it says its weights are '{held}', not '{self.sent.label}'")

    async def _post(
        self, server: Server, path: str, body: dict[str, Any] | None = None, **query: str
    ) -> Any:
        return await server.client.call(
            "POST", path, seconds=self.patience.start, body=body or {}, **query
        )

    # -- watching --------------------------------------------------------------------------------

    async def _watch(self, server: Server) -> None:
        """Look at a server now and then, and at once when a request to it failed."""
        while not server.given_up:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.alarm.wait(), BEAT)
            server.alarm.clear()
            epoch = self._epoch
            reason = None if server.strange else await self._healthy(server)
            if self._weights.locked() or epoch != self._epoch:
                # it was being given weights, which has a deadline of its own: look again
                await asyncio.sleep(_POLL)
                server.alarm.set()
                continue
            if server.strange:
                continue
            if reason is None:
                self.pool.trust(server)
                continue
            self.pool.lose(server)
            try:
                await self._recover(server, reason)
            except RlvrError as error:
                self.pool.fail(error)
                return

    async def _healthy(self, server: Server) -> str | None:
        """What is wrong with a server; None if it lives and holds the right weights."""
        ended = server.process.ended() if server.process is not None else None
        if ended is not None:
            return f"{server.name} {ended}"
        try:
            held = await server.client.weight_version(seconds=self.patience.silence)
        except (GoneError, FaultError) as error:
            return f"{server.name}: {error}"
        if held != self.sent.label:
            return f"{server.name} holds weights '{held}', not '{self.sent.label}'"
        return None

    async def _recover(self, server: Server, reason: str) -> None:
        """Bring a server back, or give it up.

        Raises:
            RunError: If no server is left.
        """
        if server.process is not None:
            await self._restart(server, reason)
        else:
            await self._await_return(server, reason)
        if server.ready or any(not one.given_up for one in self.servers):
            return
        raise RunError(
            f"no vLLM server is left: {reason}",
            remedy=("rlvr run --resume goes on from the last checkpoint", *REMEDY),
        )

    async def _restart(self, server: Server, reason: str) -> None:
        """Start a server again, a little later each time."""
        assert server.process is not None
        begun = time.monotonic()
        while server.restarts < self.patience.restarts:
            server.restarts += 1
            self.events.append(
                f"{reason}; it is started again ({server.restarts} of {self.patience.restarts})"
            )
            server.process.kill()
            await asyncio.sleep(min(FIRST_PAUSE * 2 ** (server.restarts - 1), _LONGEST_PAUSE))
            try:
                await self._bring_up(server)
            except StartError as error:
                reason = str(error)
                continue
            self.events.append(f"{server.name} is back after {time.monotonic() - begun:.0f} s")
            return
        server.process.kill()
        server.given_up = True
        self.events.append(
            f"{reason}; after {server.restarts} restarts it is given up (engine.with.restarts)"
        )

    async def _await_return(self, server: Server, reason: str) -> None:
        """Wait for a server that somebody else runs."""
        self.events.append(f"{reason}; waiting for it")
        begun = time.monotonic()
        seconds = self.patience.start * (1 if self.leads else 1 + self.patience.restarts)
        while time.monotonic() < begun + seconds:
            await asyncio.sleep(1.0)
            again = await self._healthy(server)
            if again is not None and self.leads and await self._rejoins(server):
                again = await self._healthy(server)
            if again is None:
                self.events.append(f"{server.name} is back after {time.monotonic() - begun:.0f} s")
                self.pool.trust(server)
                return
        server.given_up = True
        self.events.append(f"{reason}; it did not come back within {seconds:g} s: it is given up")

    async def _rejoins(self, server: Server) -> bool:
        """Take in a server that was started anew by somebody else, with the weights it lacks."""
        try:
            if await server.client.weight_version(seconds=BEAT) != "default":
                return False
            await self._bring_up(server)
        except (GoneError, FaultError, StartError):
            return False
        return True
