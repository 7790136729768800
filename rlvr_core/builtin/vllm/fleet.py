"""vLLM servers over the length of a run: started, watched, given weights, brought back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_core.api import MachineError, RlvrError, RunError
from rlvr_core.builtin.vllm.client import FaultError, GoneError
from rlvr_core.builtin.vllm.pool import Pool, Server
from rlvr_core.builtin.vllm.server_process import REMEDY, ServerProcess
from rlvr_core.builtin.vllm.weight_publisher import ServerWeights

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
class Fleet:
    """The servers of a run, as one process sees them. Lives on the pool's loop.

    Attributes:
        pool: Jobs.
        patience: How long is waited.
        check: Raises ``RlvrError`` if a server's account of itself does not fit the run.
        leads: Whether this process starts the servers and gives them weights.
        weights: What servers should hold.
        events: What happened, for people, until it is taken.
    """

    pool: Pool
    patience: Patience
    check: Callable[[Server, dict[str, Any]], None]
    leads: bool
    weights: ServerWeights
    events: list[str] = field(default_factory=list)

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
        elif not server.strange:
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

        async def silent() -> str | None:
            return None if await server.client.answers() else "it does not answer"

        await self._until(server, silent, seconds)
        try:
            await self._introduce(server)
            await self.weights.catch_up(server)
        except (GoneError, FaultError) as error:
            raise StartError(f"{server.name}: {error}") from error
        if not server.strange:
            self.pool.trust(server)

    async def _introduce(self, server: Server) -> None:
        """Ask a server that is new what it is."""
        facts = (await server.client.rpc("rlvr_describe", seconds=self.patience.start))[0]
        self.check(server, facts)
        server.world = int(facts["world"])
        server.born += 1

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
            last = " | ".join(server.process.last_words()) if server.process is not None else ""
            if ended is not None:
                raise StartError(f"{server.name} {ended} at its start: {last}")
            if time.monotonic() > until:
                raise StartError(
                    f"{server.name} did not come up within {seconds:g} s: {reason}"
                    + (f"; its last words: {last}" if last else "")
                )
            await asyncio.sleep(_POLL)

    # -- weights ---------------------------------------------------------------------------------

    async def hold(self) -> None:
        """Look at no server, and bring none back with the old weights, until ``release``."""
        await self.weights.lock.acquire()
        self.weights.epoch += 1

    async def release(self) -> None:
        """Go on watching."""
        self.weights.epoch += 1
        self.weights.lock.release()
        for server in self.servers:
            if server.strange and not self.leads:
                server.strange = False  # it was given ours by the process that leads
                server.alarm.set()

    async def participants(self) -> list[Server]:
        """Servers that are there to take new weights.

        One of ours that is being started again is not among them: it takes them when it is up.
        """
        found = []
        for server in self.servers:
            if server.ready or server.strange:
                found.append(server)
            elif server.process is None and not server.given_up:
                with contextlib.suppress(GoneError, FaultError):
                    if await server.client.answers():
                        await self._introduce(server)  # it may be another process by now
                        found.append(server)
        return found

    # -- watching --------------------------------------------------------------------------------

    async def _watch(self, server: Server) -> None:
        """Look at a server now and then, and at once when a request to it failed."""
        while not server.given_up:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT):
                    await server.alarm.wait()
            server.alarm.clear()
            epoch = self.weights.epoch
            reason = None if server.strange else await self._healthy(server)
            if self.weights.lock.locked() or epoch != self.weights.epoch:
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
            await asyncio.sleep(_POLL)  # a process that ends, closes its connections first
            ended = server.process.ended() if server.process is not None else None
            return f"{server.name} {ended or error}"
        if held != self.weights.sent.label:
            return f"{server.name} holds weights '{held}', not '{self.weights.sent.label}'"
        return None

    async def _recover(self, server: Server, reason: str) -> None:
        """Bring a server back, or give it up.

        Raises:
            RunError: If no server is left.
        """
        log: tuple[str, ...] = ()
        if server.process is not None:
            log = server.process.last_words()
            reason = await self._restart(server, server.process, reason)
        else:
            await self._await_return(server, reason)
        if server.ready or any(not one.given_up for one in self.servers):
            return
        raise RunError(
            f"no vLLM server is left: {reason}",
            remedy=(
                "rlvr run --resume goes on from the last checkpoint",
                *(f"its log: {line}" for line in log),
                *REMEDY,
            ),
        )

    async def _restart(self, server: Server, process: ServerProcess, reason: str) -> str:
        """Start a server again, a little later each time; the last reason it was needed for."""
        begun = time.monotonic()
        while server.restarts < self.patience.restarts:
            server.restarts += 1
            self.events.append(
                f"{reason}; it is started again ({server.restarts} of {self.patience.restarts})"
            )
            process.kill()
            await asyncio.sleep(min(FIRST_PAUSE * 2 ** (server.restarts - 1), _LONGEST_PAUSE))
            try:
                await self._bring_up(server)
            except StartError as error:
                reason = str(error)
                continue
            self.events.append(f"{server.name} is back after {time.monotonic() - begun:.0f} s")
            return reason
        process.kill()
        server.given_up = True
        self.events.append(
            f"{reason}; after {server.restarts} restarts it is given up (engine.with.restarts)"
        )
        return reason

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
