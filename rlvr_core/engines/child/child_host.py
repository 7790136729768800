"""The main loop of the process that hosts an engine; it ends when the trainer does.

Messages pass between our own two processes over a private socket. A thread receives them; the one
thread that generates acts on them, between two tokens if the engine is ``Interruptible``, else when
it has drained.
"""

from __future__ import annotations

import os
import pickle
import signal
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    EngineContext,
    Generation,
    Interruptible,
    RlvrError,
    RunError,
    one_line,
)
from rlvr_core.api.transport import TransportChoice
from rlvr_core.engines.child.link import Link, Message

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class SpawnArgs:
    """Arguments of the process.

    Attributes:
        engine: The engine, not started.
        context: Context for the engine's ``start``.
        device: Device for its copy of the trainer's model; empty if it has none.
        transport: How it receives weights.
        threads: Number of compute threads.
    """

    engine: Any
    context: EngineContext
    device: str
    transport: TransportChoice
    threads: int


def main(fd: int, *_: int) -> None:
    """Serve until told to close, or until the trainer exits; ``fd`` is the socket to it."""
    # Slurm, for one, signals every process of a job: the trainer then finishes its step, and needs
    # the engine for that
    for notice in (signal.SIGINT, signal.SIGTERM):
        signal.signal(notice, signal.SIG_IGN)
    connection = Connection(fd)
    try:
        (message,) = pickle.loads(connection.recv_bytes())
        spawn_args: SpawnArgs = pickle.loads(message)
        host = Host(connection, spawn_args)
    except BaseException as error:
        connection.send_bytes(pickle.dumps(("broken", _plain(error))))
        return
    connection.send_bytes(pickle.dumps(("ready",)))
    host.serve()


class Host:
    """An engine, and the queue of messages for it."""

    def __init__(self, connection: Connection, spawn_args: SpawnArgs) -> None:
        import torch

        torch.set_num_threads(spawn_args.threads)
        self._link = Link(connection)
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._engine = spawn_args.engine
        self._transport = spawn_args.transport.make()
        self._module = spawn_args.context.model if spawn_args.device else None
        if self._module is not None:
            module: Any = self._module
            module.to(spawn_args.device)
        self._open: dict[int, Future[tuple[Generation, ...]]] = {}
        self._closed = False
        self._engine.start(spawn_args.context)
        if isinstance(self._engine, Interruptible):
            self._engine.between = self._take_waiting

    def serve(self) -> None:
        """Process requests until told to close."""
        # the trainer has exited: nobody waits for the results
        self._link.start(self._inbox.put, lambda error: os._exit(0))
        while not self._closed:
            self._act(self._inbox.get())
            self._take_waiting()
            while self._open and not self._closed:
                self._drain()
        self._engine.close()
        self._transport.close()

    def _take_waiting(self) -> None:
        while not self._inbox.empty():
            self._act(self._inbox.get())

    def _drain(self) -> None:
        try:
            self._engine.drain(None)
        except BaseException as error:
            for future in list(self._open.values()):
                if not future.done():
                    future.set_exception(error)
        self._take_waiting()

    def _act(self, message: Message) -> None:
        kind, *rest = message
        if kind == "submit":
            for ticket, request in rest[0]:
                self._submit(ticket, request)
        elif kind == "close":
            self._closed = True
            if isinstance(self._engine, Interruptible):
                self._engine.abort()
        else:
            call, *arguments = rest
            actor = self if kind == "load_weights" else self._engine
            try:
                answer = getattr(actor, kind)(*arguments)
            except BaseException as error:
                self._link.send("failed", call, _plain(error))
            else:
                self._link.send("done", call, answer)

    def _submit(self, ticket: int, request: Any) -> None:
        try:
            future = self._engine.submit(request)
        except BaseException as error:
            self._link.send("failed", ticket, _plain(error))
            return
        self._open[ticket] = future
        future.add_done_callback(lambda done: self._finish(ticket, done))

    def _finish(self, ticket: int, future: Future[tuple[Generation, ...]]) -> None:
        del self._open[ticket]
        if future.cancelled():
            self._link.send("cancelled", ticket)
            return
        error = future.exception()
        if error is None:
            self._link.send("done", ticket, future.result())
        else:
            self._link.send("failed", ticket, _plain(error))

    def load_weights(self, version: int, messages: Any, adapter_config: Any) -> None:
        """Receive weights, and have the engine load them."""
        import torch

        from rlvr_core.engines.child.shared_weights import ReceivedSource

        received: dict[str, Tensor] = {}
        for message in messages:
            self._transport.receive(message, received.update, 0)
        source = ReceivedSource(self._module, received, adapter_config)
        if self._module is not None:
            source.refresh()
        self._engine.load_weights(version, source)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()  # the trainer may write over what was received from now on


def _plain(error: BaseException) -> RlvrError:
    """Convert an error to one that can be pickled."""
    if isinstance(error, RlvrError):
        return error
    return RunError(f"the engine's process failed: {one_line(error)}")
