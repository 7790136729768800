"""The remote end: one engine in a Ray actor, which generates in a thread of its own.

Nothing is raised to Ray: each answer is a ``Reply``, so that what an engine raises arrives as it
is, and an exception of Ray always means that the actor is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal

from rlvr_core import __version__
from rlvr_core.api import (
    EngineContext,
    FingerprintsWeights,
    Generation,
    GenerationRequest,
    Interruptible,
    Json,
    MachineError,
    RlvrError,
    RunError,
    TransportChoice,
)

if TYPE_CHECKING:
    from torch import Tensor

Answers = tuple[Generation, ...]


@dataclass(frozen=True, slots=True)
class ActorArgs:
    """What an actor is started with.

    Attributes:
        use: The engine, by registered name or place.
        options: Its options.
        context: For its ``start``; ``model`` has no weights.
        own_weights: Whether it loads its first weights by itself, and takes others by name.
        device: For its copy of the trainer's model.
        transport: How it receives weights.
        threads: Number of compute threads.
        environment: Variables to set.
        version: The trainer's version of rlvr-core.
    """

    use: str
    options: Mapping[str, Any]
    context: EngineContext
    own_weights: bool
    device: str
    transport: TransportChoice
    threads: int
    environment: Mapping[str, str]
    version: str


@dataclass(frozen=True, slots=True)
class Held:
    """The weights that actors should hold.

    Attributes:
        version: Their version.
        messages: The transport's messages that bring them.
        adapter_config: Configuration of the LoRA adapter that they are; None for whole weights.
        digest: Fingerprint of what was sent.
        probe: What to sample after they are loaded; None for nothing.
    """

    version: int
    messages: Sequence[Json]
    adapter_config: Mapping[str, Json] | None
    digest: str
    probe: GenerationRequest | None


@dataclass(frozen=True, slots=True)
class Reply:
    """An actor's answer.

    Attributes:
        kind: Whether it did what was asked.
        value: What it gives, or the ``RlvrError``.
    """

    kind: Literal["done", "failed", "cancelled"]
    value: Any = None


class RolloutActor:
    """An engine on some node; an asynchronous Ray actor."""

    def __init__(self) -> None:
        self._host: EngineHost | None = None
        self._answers: dict[int, Future[Answers]] = {}

    async def start(self, args: ActorArgs, index: int) -> Reply:
        """Start the engine; the reply says where it is."""
        try:
            self._host = EngineHost(args, index)
        except BaseException as error:
            return Reply("failed", _plain(error, args.use))
        return await self._done(self._host.call(self._host.start))

    async def load_weights(self, held: Held) -> Reply:
        """Load weights; the reply has their fingerprint as it arrived, and the probe's answer."""
        host = self._started()
        reply = await self._done(host.call(lambda: host.load_weights(held)))
        if reply.kind == "failed" or held.probe is None:
            return reply
        probe: Future[Answers] = Future()
        host.post(lambda: host.submit([(held.probe, probe)]))
        answered = await self._done(probe)
        return (
            Reply("done", (reply.value, *answered.value)) if answered.kind == "done" else answered
        )

    async def submit(self, batch: Sequence[tuple[int, GenerationRequest]]) -> None:
        """Take requests, all at once; ``answer`` waits for each."""
        host = self._started()
        opened = [(request, self._answer_to(ticket)) for ticket, request in batch]
        host.post(lambda: host.submit(opened))

    async def answer(self, ticket: int) -> Reply:
        """Wait for the completions of a request."""
        reply = await self._done(self._answer_to(ticket))
        del self._answers[ticket]
        return reply

    async def abort(self) -> Reply:
        """Cancel all requests."""
        host = self._started()
        return await self._done(host.call(host.abort))

    async def fingerprint(self) -> Reply:
        """Checksums of the weights it computes with; see ``FingerprintsWeights``."""
        host = self._started()
        return await self._done(host.call(host.fingerprint))

    async def stay(self) -> None:
        """Never return, so that whoever waits for it hears of the actor's end at once."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """End the engine."""
        if self._host is not None:
            await self._done(self._host.call(self._host.close))

    def _started(self) -> EngineHost:
        assert self._host is not None, "start comes first"
        return self._host

    def _answer_to(self, ticket: int) -> Future[Answers]:
        # Ray does not promise that submit begins before answer
        return self._answers.setdefault(ticket, Future())

    async def _done(self, future: Future[Any]) -> Reply:
        try:
            return Reply("done", await asyncio.wrap_future(future))
        except (CancelledError, asyncio.CancelledError):
            return Reply("cancelled")
        except BaseException as error:
            return Reply("failed", _plain(error, self._host.args.use if self._host else ""))


class EngineHost:
    """An engine, and the one thread that works with it.

    What is posted is done between two tokens if the engine is ``Interruptible``, else when it has
    drained.
    """

    def __init__(self, args: ActorArgs, index: int) -> None:
        if args.version != __version__:
            raise MachineError(
                f"{platform.node()} has rlvr-core {__version__}, and the trainer {args.version}",
                where="engine.with",
                remedy="install the same on every node of the cluster",
            )
        _prepare(args)
        from rlvr_core.api.services import Mark, find, load_host, made

        self.args, self._index = args, index
        component = find(load_host(), "engine", args.use, args.options, made({}, Mark("")), ())
        self._entry = component.entry
        self._engine: Any = component.make("engine.with.engine")
        self._transport = args.transport.make()
        self._module: Any = None
        self._open: set[Future[Answers]] = set()
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._closed = False
        threading.Thread(target=self._serve, name="engine", daemon=True).start()

    def post(self, work: Callable[[], None]) -> None:
        """Have the engine's thread do something."""
        self._inbox.put(work)

    def call(self, work: Callable[[], Any]) -> Future[Any]:
        """Have the engine's thread do something, and return its result."""
        future: Future[Any] = Future()

        def act() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self.post(act)
        return future

    # -- in the engine's thread ------------------------------------------------------------------

    def start(self) -> dict[str, Json]:
        """Start the engine, and say where it is."""
        import ray
        import torch

        torch.set_num_threads(self.args.threads)
        context = self.args.context
        if not self.args.own_weights:
            self._module = context.model
            from rlvr_core.builtin.ray.weights import materialise

            materialise(self._module, self.args.device)
        with self._named("could not start"):
            self._engine.start(context)
        if isinstance(self._engine, Interruptible):
            self._engine.between = self._take_waiting
        return {
            "node": ray.get_runtime_context().get_node_id(),
            "host": platform.node(),
            "pid": os.getpid(),
            "log": os.path.realpath("/proc/self/fd/2"),
        }

    def load_weights(self, held: Held) -> str:
        """Receive weights and load them; returns the fingerprint of what arrived."""
        received: dict[str, Tensor] = {}
        for message in held.messages:
            try:
                self._transport.receive(message, received.update, self._index)
            except OSError as error:
                raise RunError(
                    f"the rollout actor on {platform.node()} cannot read the weights: {error}",
                    where="engine.transport",
                    remedy="engine.transport: {use: files, with: {folder: ...}} names a folder "
                    "that trainer and actors see at the same place",
                ) from error
        from rlvr_core.builtin.ray.weights import ReceivedSource, digest_of

        digest = digest_of(received)
        source = ReceivedSource(self._module, received, held.adapter_config)
        if self._module is not None:
            source.refresh()
        with self._named("could not load weights"):
            self._engine.load_weights(held.version, source)
        return digest

    def submit(self, batch: Sequence[tuple[Any, Future[Answers]]]) -> None:
        """Hand requests to the engine; their futures are resolved as it finishes them."""
        for request, future in batch:
            try:
                with self._named("failed"):
                    given: Future[Answers] = self._engine.submit(request)
            except BaseException as error:
                future.set_exception(error)
                continue
            self._open.add(given)
            given.add_done_callback(partial(self._finish, to=future))

    def abort(self) -> None:
        """Cancel all requests."""
        self._engine.abort()

    def fingerprint(self) -> dict[str, int]:
        """See ``FingerprintsWeights``; nothing of an engine that cannot read its weights back."""
        if not isinstance(self._engine, FingerprintsWeights):
            return {}
        return self._engine.fingerprint()

    def close(self) -> None:
        """End the engine, after whatever it is doing."""
        self._closed = True
        self._engine.close()
        self._transport.close()

    def _serve(self) -> None:
        while not self._closed:
            self._inbox.get()()
            self._take_waiting()
            while self._open and not self._closed:
                self._drain()

    def _take_waiting(self) -> None:
        while not self._inbox.empty():
            self._inbox.get()()

    def _drain(self) -> None:
        try:
            with self._named("failed"):
                self._engine.drain(None)
        except BaseException as error:
            for given in list(self._open):
                if not given.done():
                    given.set_exception(error)
        self._take_waiting()

    def _finish(self, given: Future[Answers], to: Future[Answers]) -> None:
        self._open.discard(given)
        if given.cancelled():
            to.cancel()
        elif (error := given.exception()) is not None:
            try:
                with self._named("failed"):
                    raise error
            except BaseException as named:
                to.set_exception(named)
        else:
            to.set_result(given.result())

    def _named(self, failed: str) -> contextlib.AbstractContextManager[None]:
        return self._entry.named(f"{failed} in a rollout actor", "engine.with.engine")


def _prepare(args: ActorArgs) -> None:
    """Set this process up: it is no rank of a run, even if its node was started by one."""
    from rlvr_core.api.services import apart, quiet_libraries

    kept = apart()
    for name in set(os.environ) - set(kept):
        del os.environ[name]
    os.environ.update(args.environment)
    quiet_libraries()


def _plain(error: BaseException, use: str) -> RlvrError:
    """Convert an error to one that can be pickled."""
    if isinstance(error, RlvrError):
        return error
    first, *_ = str(error).strip().splitlines() or [""]
    return RunError(f"engine {use} failed in a rollout actor: {type(error).__name__}: {first}")
