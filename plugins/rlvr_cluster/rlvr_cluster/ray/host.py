"""An engine in an actor's process, and the thread that works with it."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from rlvr_cluster.ray.messages import ActorArgs, Answers, SentWeights
from rlvr_core.api import (
    FingerprintsWeights,
    GenerationRequest,
    Interruptible,
    MachineError,
)
from rlvr_core.toolkit import __version__, load_host, quiet_libraries

if TYPE_CHECKING:
    from torch import Tensor


class EngineHost:
    """An engine, and the one thread that works with it.

    Posted work is done between two tokens if the engine is ``Interruptible``, and otherwise when it
    has drained.

    Raises:
        MachineError: If this node has another version of rlvr-core than the trainer.
        RlvrError: If the engine cannot be constructed.
    """

    def __init__(self, args: ActorArgs, index: int) -> None:
        join_run(args.version, args.environment, whose="the trainer", where="engine.with")
        from rlvr_core.config.resolve import find
        from rlvr_core.config.tree import Mark, made

        self._args, self._index = args, index
        component = find(load_host(), "engine", args.use, args.options, made({}, Mark("")), ())
        self._entry = component.entry
        self._engine: Any = component.make("engine.with.engine")
        self._module: Any = None
        self._open: set[Future[Answers]] = set()
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._closed = False
        threading.Thread(target=self._serve, name="engine", daemon=True).start()

    def post(self, work: Callable[[], None]) -> None:
        """Have the engine's thread call a function."""
        self._inbox.put(work)

    def call(self, work: Callable[[], Any]) -> Future[Any]:
        """Have the engine's thread call a function, and return its result as a future."""
        future: Future[Any] = Future()

        def act() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self.post(act)
        return future

    # -- in the engine's thread ------------------------------------------------------------------

    def start(self) -> dict[str, str | int]:
        """Start the engine, and return its node, host and process id."""
        import ray
        import torch

        torch.set_num_threads(self._args.threads)
        context = self._args.context
        if not self._args.own_weights:
            from rlvr_cluster.ray.weights import materialise

            self._module = context.model
            materialise(self._module, self._args.device)
        with self._named("could not start"):
            self._engine.start(context)
        if isinstance(self._engine, Interruptible):
            self._engine.between = self._take_waiting
        return {
            "node": ray.get_runtime_context().get_node_id(),
            "host": platform.node(),
            "pid": os.getpid(),
        }

    def load_weights(self, weights: SentWeights) -> None:
        """Read weights from Ray's object store, and load them."""
        import ray

        from rlvr_cluster.ray.weights import ReceivedSource

        received: dict[str, Tensor] = ray.get(weights.tensors[0])
        source = ReceivedSource(self._module, received, weights.adapter_config)
        if self._module is not None:
            source.refresh()
        with self._named("could not load weights"):
            self._engine.load_weights(weights.version, source)

    def submit(self, batch: Sequence[tuple[GenerationRequest, Future[Answers]]]) -> None:
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
        """See ``FingerprintsWeights``; empty for an engine that cannot read its weights back."""
        if not isinstance(self._engine, FingerprintsWeights):
            return {}
        return self._engine.fingerprint()

    def close(self) -> None:
        """End the engine after its current work."""
        self._closed = True
        self._engine.close()

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


def join_run(version: str, variables: Mapping[str, str], *, whose: str, where: str) -> None:
    """Take over a run's environment, without the rank of the process that started the node.

    Args:
        version: The run's version of rlvr-core.
        variables: The run's environment variables.
        whose: Owner of that version, for the message.
        where: The option that caused this process to start.

    Raises:
        MachineError: If this node has another version.
    """
    from rlvr_core.workers.apart import apart

    if version != __version__:
        raise MachineError(
            f"{platform.node()} has rlvr-core {__version__}, and {whose} {version}",
            where=where,
            remedy="install the same on every node of the cluster",
        )
    kept = apart()
    for name in set(os.environ) - set(kept):
        del os.environ[name]
    os.environ.update(variables)
    quiet_libraries()
