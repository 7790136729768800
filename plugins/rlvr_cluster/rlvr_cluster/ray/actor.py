"""The Ray actor of a rollout engine, around an ``EngineHost``.

Nothing is raised to Ray: each answer is a ``Reply``. So an engine's error arrives unchanged, and an
exception of Ray always means that the actor is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

from rlvr_cluster.ray.host import EngineHost
from rlvr_cluster.ray.messages import ActorArgs, Answers, Reply, SentWeights
from rlvr_core.api import GenerationRequest, RlvrError, RunError, one_line


class RolloutActor:
    """An engine on some node; an asynchronous Ray actor."""

    def __init__(self) -> None:
        self._use = ""
        self._started: EngineHost | None = None
        self._answers: dict[int, Future[Answers]] = {}

    async def start(self, args: ActorArgs, index: int) -> Reply:
        """Start the engine; the reply says where it is."""
        self._use = args.use
        try:
            self._started = EngineHost(args, index)
        except BaseException as error:
            return Reply("failed", _picklable(error, args.use))
        return await self._reply(self._host.call(self._host.start))

    async def load_weights(self, weights: SentWeights) -> Reply:
        """Load weights and sample the probe; the reply holds the sample."""
        host = self._host
        loaded = await self._reply(host.call(lambda: host.load_weights(weights)))
        if loaded.kind != "done":
            return loaded
        probe: Future[Answers] = Future()
        host.post(lambda: host.submit([(weights.probe, probe)]))
        answered = await self._reply(probe)
        if answered.kind != "done":
            return answered
        return Reply("done", answered.value[0])

    async def submit(self, batch: Sequence[tuple[int, GenerationRequest]]) -> None:
        """Take a batch of requests; ``answer`` waits for each."""
        host = self._host
        opened = [(request, self._answer_to(ticket)) for ticket, request in batch]
        host.post(lambda: host.submit(opened))

    async def answer(self, ticket: int) -> Reply:
        """Wait for the completions of a request."""
        reply = await self._reply(self._answer_to(ticket))
        del self._answers[ticket]
        return reply

    async def abort(self) -> Reply:
        """Cancel all requests."""
        return await self._reply(self._host.call(self._host.abort))

    async def fingerprint(self) -> Reply:
        """Return the checksums of the engine's weights; see ``FingerprintsWeights``."""
        return await self._reply(self._host.call(self._host.fingerprint))

    async def stay(self) -> None:
        """Never return, so that the caller learns of the actor's end at once."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """End the engine."""
        if self._started is not None:
            await self._reply(self._started.call(self._started.close))

    @property
    def _host(self) -> EngineHost:
        assert self._started is not None, "start comes first"
        return self._started

    def _answer_to(self, ticket: int) -> Future[Answers]:
        # Ray does not guarantee that submit begins before answer
        return self._answers.setdefault(ticket, Future())

    async def _reply(self, future: Future[Any]) -> Reply:
        try:
            return Reply("done", await asyncio.wrap_future(future))
        except (CancelledError, asyncio.CancelledError):
            return Reply("cancelled")
        except BaseException as error:
            return Reply("failed", _picklable(error, self._use))


def _picklable(error: BaseException, use: str) -> RlvrError:
    if isinstance(error, RlvrError):
        return error
    return RunError(f"engine {use} failed in a rollout actor: {one_line(error)}")
