"""vLLM servers over the length of a run: started, watched, given weights, brought back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_core.api import MachineError, RlvrError, RunError
from rlvr_core.engines.vllm.process import START_REMEDIES
from rlvr_servers.client import FaultError, GoneError
from rlvr_servers.pool import Server, ServerPool
from rlvr_servers.process import ServerConfig, ServerProcess
from rlvr_servers.publisher import ServerWeights

CHECK_INTERVAL = 2.0
"""Seconds between two health checks of a server."""
FIRST_RESTART_DELAY = 1.0
"""Seconds before the first restart; doubled from one to the next."""
_POLL = 0.2
_MAX_RESTART_DELAY = 30.0


class StartError(Exception):
    """A server did not come up."""


@dataclass(slots=True)
class Fleet:
    """The servers of a run, as one process sees them. Lives on the pool's loop.

    Attributes:
        pool: Sends requests to the servers.
        config: Deadlines and restarts.
        check: Given a server's name and facts; raises ``RlvrError`` if it does not fit the run.
        leads: Whether this process starts the servers and gives them weights.
        weights: The weights that servers should hold.
        events: Messages for the display, removed when they are taken.
    """

    pool: ServerPool
    config: ServerConfig
    check: Callable[[str, dict[str, Any]], None]
    leads: bool
    weights: ServerWeights
    events: list[str] = field(default_factory=list)

    @property
    def servers(self) -> Sequence[Server]:
        """The servers of the run, lost ones included."""
        return self.pool.servers

    # -- starting --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bring every server up, and begin to watch.

        Raises:
            MachineError: If one does not come up.
        """
        try:
            await asyncio.gather(*(self._first_start(server) for server in self.servers))
        except StartError as error:
            raise MachineError(str(error), where="engine", remedy=START_REMEDIES) from error
        for server in self.servers:
            self.pool.spawn(self._watch(server))

    async def _first_start(self, server: Server) -> None:
        if self.leads:
            await self._bring_up(server)
        elif not server.holds_other_weights:
            await self._wait_until(server, lambda: self._health_problem(server))
            self.pool.mark_ready(server)

    async def _bring_up(self, server: Server) -> None:
        """Start a server if its process is ours, wait until it answers, and give it weights.

        Raises:
            StartError: If that fails.
            RlvrError: If it is not a server for this run.
        """
        if server.process is not None:
            server.process.start()

        async def silent() -> str | None:
            return None if await server.client.answers() else "it does not answer"

        await self._wait_until(server, silent)
        try:
            await self._read_facts(server)
            await self.weights.catch_up(server)
        except (GoneError, FaultError) as error:
            raise StartError(f"{server.name}: {error}") from error
        if not server.holds_other_weights:
            self.pool.mark_ready(server)

    async def _read_facts(self, server: Server) -> None:
        """Read a new server's facts and check that it fits the run."""
        facts = (await server.client.rpc("rlvr_describe", seconds=self.config.deadline))[0]
        self.check(server.name, facts)
        server.world = int(facts["world"])
        server.incarnation += 1

    async def _wait_until(
        self, server: Server, problem: Callable[[], Awaitable[str | None]]
    ) -> None:
        """Wait until ``problem`` returns None: what is wrong with a server, in words.

        Raises:
            StartError: If its process ends, or it takes too long.
        """
        seconds = self.config.deadline
        until = time.monotonic() + seconds
        while (reason := await problem()) is not None:
            ended = server.process.ended() if server.process is not None else None
            last = " | ".join(server.process.log_tail()) if server.process is not None else ""
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
        """Check no server, and bring none back with the old weights, until ``release``."""
        await self.weights.lock.acquire()
        self.weights.epoch += 1

    async def release(self) -> None:
        """Resume the health checks."""
        self.weights.epoch += 1
        self.weights.lock.release()
        for server in self.servers:
            if server.holds_other_weights and not self.leads:
                server.holds_other_weights = False  # it was given ours by the process that leads
                server.check_now.set()

    async def participants(self) -> list[Server]:
        """Servers that can take new weights now.

        A server of ours that is being started again is left out: it takes them when it is up.
        """
        participants = []
        for server in self.servers:
            if server.ready or server.holds_other_weights:
                participants.append(server)
            elif server.process is None and not server.given_up:
                with contextlib.suppress(GoneError, FaultError):
                    if await server.client.answers():
                        await self._read_facts(server)  # it may be another process by now
                        participants.append(server)
        return participants

    async def fingerprint(self) -> dict[str, int]:
        """Checksums of the weights that the servers compute with; see ``FingerprintsWeights``.

        Raises:
            RunError: If one cannot read them back, or holds others than the rest.
        """
        checksums: dict[str, int] = {}
        for server in [server for server in self.servers if server.ready]:
            try:
                workers = await server.client.rpc("rlvr_fingerprint", seconds=self.weights.seconds)
            except GoneError:
                server.check_now.set()  # it takes the weights again when it comes back
                continue
            except FaultError as error:
                raise RunError(
                    f"{server.name} could not read its weights back: {error}",
                    remedy="start it with the rlvr-core of this run, or switch the guard off: "
                    "guards: [{use: core/sync, off: true}]",
                ) from error
            held = {name: int(digits) for sums in workers for name, digits in sums.items()}
            known = held.keys() & checksums
            if other := [name for name in known if held[name] != checksums[name]]:
                raise RunError(
                    f"{server.name} holds other weights than the servers before it in "
                    f"{len(other)} of {len(held)} tensors: {min(other)}",
                    remedy="part of the weights did not arrive there; see rlvr docs guards#sync",
                )
            checksums |= held
        return checksums

    # -- watching --------------------------------------------------------------------------------

    async def _watch(self, server: Server) -> None:
        """Check a server regularly, and at once when a request to it failed."""
        while not server.given_up:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_INTERVAL):
                    await server.check_now.wait()
            server.check_now.clear()
            epoch = self.weights.epoch
            reason = None if server.holds_other_weights else await self._health_problem(server)
            if self.weights.lock.locked() or epoch != self.weights.epoch:
                # it was being given weights, which has a deadline of its own: look again
                await asyncio.sleep(_POLL)
                server.check_now.set()
                continue
            if server.holds_other_weights:
                continue
            if reason is None:
                self.pool.mark_ready(server)
                continue
            self.pool.mark_lost(server)
            try:
                await self._recover(server, reason)
            except RlvrError as error:
                self.pool.fail(error)
                return

    async def _health_problem(self, server: Server) -> str | None:
        """Return a server's fault; None if it lives and holds the right weights."""
        ended = server.process.ended() if server.process is not None else None
        if ended is not None:
            return f"{server.name} {ended}"
        try:
            held = await server.client.weight_version(seconds=self.config.hang_after)
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
            log = server.process.log_tail()
            reason = await self._restart(server, server.process, reason)
        else:
            await self._await_return(server, reason)
        if server.ready or any(not other.given_up for other in self.servers):
            return
        raise RunError(
            f"no vLLM server is left: {reason}",
            remedy=(
                "rlvr run --resume goes on from the last checkpoint",
                *(f"its log: {line}" for line in log),
                *START_REMEDIES,
            ),
        )

    async def _restart(self, server: Server, process: ServerProcess, reason: str) -> str:
        """Start a server again, with longer delays; return why it was lost last."""
        begun = time.monotonic()
        while server.restarts < self.config.restarts:
            server.restarts += 1
            self.events.append(
                f"{reason}; it is started again ({server.restarts} of {self.config.restarts})"
            )
            process.kill()
            await asyncio.sleep(
                min(FIRST_RESTART_DELAY * 2 ** (server.restarts - 1), _MAX_RESTART_DELAY)
            )
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
        seconds = self.config.deadline * (1 if self.leads else 1 + self.config.restarts)
        while time.monotonic() < begun + seconds:
            await asyncio.sleep(1.0)
            problem = await self._health_problem(server)
            if problem is not None and self.leads and await self._rejoins(server):
                problem = await self._health_problem(server)
            if problem is None:
                self.events.append(f"{server.name} is back after {time.monotonic() - begun:.0f} s")
                self.pool.mark_ready(server)
                return
        server.given_up = True
        self.events.append(f"{reason}; it did not come back within {seconds:g} s: it is given up")

    async def _rejoins(self, server: Server) -> bool:
        """Take in a server that was started anew by somebody else, with the weights it lacks."""
        try:
            if await server.client.weight_version(seconds=CHECK_INTERVAL) != "default":
                return False
            await self._bring_up(server)
        except (GoneError, FaultError, StartError):
            return False
        return True
