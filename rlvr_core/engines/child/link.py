"""Connections between processes of a run, for messages outside of collectives.

They join the trainer to its engine's process, and rank 0 to the other processes.
Collectives run only in the main thread, at the ends of steps. Other messages use separate sockets:
in a collective, rank 0 sends its address and a secret to all processes, and it rejects connections
that do not present the secret.
"""

from __future__ import annotations

import contextlib
import hmac
import itertools
import os
import pickle
import secrets
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from rlvr_core.api import MachineError
from rlvr_core.parallel.ranks import Ranks

Message = tuple[Any, ...]

_SECRET = 32
_RANK = 4
_HELLO = 5.0
"""Seconds that a connecting process may take to identify itself."""


class Link:
    """One connection; messages arrive in order, and sending never blocks.

    Args:
        connection: Socket to the other process.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()

    def start(self, take: Callable[[Message], None], lost: Callable[[Exception], None]) -> None:
        """Start receiving and sending.

        Args:
            take: Called with each message, in a separate thread.
            lost: Called once, with ``EOFError`` or ``OSError`` when the other process has closed
                the connection or ended, or with the error of a message that cannot be processed;
                in that case the connection is closed.
        """

        def listen() -> None:
            try:
                while True:
                    take(pickle.loads(self._connection.recv_bytes()))
            except Exception as error:
                lost(error)
                self.close()

        for work in (listen, self._write):
            threading.Thread(target=work, name="link", daemon=True).start()

    def send(self, *message: Any) -> None:
        """Queue a message; never blocks, even if the other process is suspended."""
        self._outbox.put(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def close(self) -> None:
        """Close the connection after all queued messages are sent; the other side is notified."""
        self._outbox.put(None)

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while (message := self._outbox.get()) is not None:
                self._connection.send_bytes(message)
            with socket.socket(fileno=os.dup(self._connection.fileno())) as way:
                way.shutdown(socket.SHUT_RDWR)  # wakes the receiving thread


class Replies:
    """The futures of what was asked over a link, by number. Methods may be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._open: dict[int, Future[Any]] = {}
        self._fault: BaseException | None = None

    def expect(self) -> tuple[int, Future[Any]]:
        """Return a new number, and the future of its answer.

        Raises:
            BaseException: What ``fail`` was called with, if it was.
        """
        with self._lock:
            self.check()
            number = next(self._numbers)
            self._open[number] = Future()
            return number, self._open[number]

    def check(self) -> None:
        """Raise what ``fail`` was called with, if it was."""
        if self._fault is not None:
            raise self._fault

    def take(self, message: Message) -> None:
        """Resolve a future: ``done`` or ``failed``, number and answer, or ``cancelled``, number."""
        kind, number, *answer = message
        with self._lock:
            future = self._open.pop(number, None)
        if future is None:
            return  # failed meanwhile
        if kind == "cancelled":
            future.cancel()
        elif kind == "failed":
            future.set_exception(answer[0])
        else:
            future.set_result(answer[0])

    def fail(self, error: BaseException) -> None:
        """Fail every open future with the first such error, and expect nothing more."""
        with self._lock:
            self._fault = self._fault or error
            left, self._open = self._open, {}
        for future in left.values():
            future.set_exception(error)


def link_up(ranks: Ranks, limit: float) -> dict[int, Link]:
    """Connect rank 0 with every other process; every process must call this.

    Args:
        ranks: The processes.
        limit: Seconds allowed.

    Returns:
        The connections by rank: on rank 0 to all others, elsewhere only to rank 0.

    Raises:
        MachineError: If a process cannot be reached.
    """
    host = "127.0.0.1" if _on_one_machine(ranks) else os.environ["MASTER_ADDR"]
    server: socket.socket | None = None

    def listen() -> tuple[int, bytes]:
        nonlocal server
        server = socket.create_server((host if _on_one_machine(ranks) else "", 0))
        return server.getsockname()[1], secrets.token_bytes(_SECRET)

    port, secret = ranks.on_main(listen)
    try:
        if server is None:
            way = socket.create_connection((host, port), timeout=limit)
            way.sendall(secret + ranks.index.to_bytes(_RANK, "big"))
            return {0: Link(_connection(way))}
        with server:
            return _accept(server, secret, ranks.world - 1, limit)
    except OSError as error:
        raise MachineError(
            f"process {ranks.index} cannot be linked with the others, at {host}:{port}: {error}",
            remedy="let the machines of the run reach each other on any port",
        ) from error


def _accept(server: socket.socket, secret: bytes, others: int, limit: float) -> dict[int, Link]:
    until = time.monotonic() + limit
    links: dict[int, Link] = {}
    while len(links) < others:
        server.settimeout(max(0.001, until - time.monotonic()))
        client, _ = server.accept()
        client.settimeout(_HELLO)
        received = _read(client, _SECRET + _RANK)
        if hmac.compare_digest(received[:_SECRET], secret):
            links[int.from_bytes(received[_SECRET:], "big")] = Link(_connection(client))
        else:
            client.close()
    return links


def _read(client: socket.socket, n: int) -> bytes:
    received = b""
    with contextlib.suppress(OSError):
        while len(received) < n and (more := client.recv(n - len(received))):
            received += more
    return received


def _connection(way: socket.socket) -> Connection:
    way.settimeout(None)
    way.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(way.detach())


def _on_one_machine(ranks: Ranks) -> bool:
    return os.environ.get("LOCAL_WORLD_SIZE") == str(ranks.world)
