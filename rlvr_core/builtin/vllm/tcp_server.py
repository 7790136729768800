"""The serving end of transport ``tcp``: files, read-only, to whoever knows a key."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import socketserver
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from rlvr_core.builtin.vllm import tcp_wire as wire
from rlvr_core.builtin.vllm.addresses import family_of
from rlvr_core.builtin.vllm.tcp_sources import Sources

_HELLO_SECONDS = 10.0
"""For a client to say who it is."""
_IDLE_SECONDS = 60.0
"""Without a request, or without a byte taken, until a connection is closed."""
_MOST_CONNECTIONS = 512
"""At a time; each is an open file of the trainer."""


class WeightServer:
    """Serves the files of the newest weights, from threads of its own.

    Args:
        host: Address to listen on, at a free port.
        key: What clients have to know.

    Raises:
        OSError: If it cannot listen there.
    """

    def __init__(self, host: str, key: bytes) -> None:
        self.key = key
        self.number = 0
        self.sources = Sources()
        self._files: Sequence[Path] = ()
        self._checksums: dict[tuple[Path, int, int], int] = {}
        self._open: set[socket.socket] = set()
        self._state = threading.Lock()
        self._server = _Server(host, self)
        self.place = wire.Place(host, self._server.server_address[1])
        threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="weights", daemon=True
        ).start()

    def publish(self, number: int, files: Sequence[Path]) -> None:
        """Serve files, under a number higher than all before."""
        with self._state:
            self.number, self._files, self.sources = number, tuple(files), Sources()

    def withdraw(self) -> None:
        """Serve nothing, and end all connections: what they were to bring is about to go."""
        with self._state:
            self._files, self._checksums, connections = (), {}, list(self._open)
        for one in connections:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop listening, and end all connections."""
        self._server.shutdown()
        self._server.server_close()
        self.withdraw()

    # -- in the threads --------------------------------------------------------------------------

    def entered(self, connection: socket.socket) -> bool:
        """Count a connection; False if there are too many."""
        with self._state:
            if len(self._open) >= _MOST_CONNECTIONS:
                return False
            self._open.add(connection)
            return True

    def left(self, connection: socket.socket) -> None:
        """See ``entered``."""
        with self._state:
            self._open.discard(connection)

    def serves(self, number: int) -> bool:
        """Whether weights of this number are there now."""
        with self._state:
            return bool(self._files) and self.number == number

    def open(self, number: int, index: int) -> BinaryIO | None:
        """Open a file; None if other weights have taken the place of those.

        The name is of one send alone, so that a file opened late is never one of other weights.
        """
        with self._state:
            if self.number != number or index >= len(self._files):
                return None
            path = self._files[index]
        try:
            return path.open("rb")
        except FileNotFoundError:
            return None

    def checksum(self, file: BinaryIO, offset: int, length: int) -> int:
        """CRC-32 of a part of a file, computed once for all clients."""
        part = (Path(file.name), offset, length)
        with self._state:
            known = self._checksums.get(part)
        if known is None:
            known = zlib.crc32(os.pread(file.fileno(), length, offset))
            with self._state:
                self._checksums[part] = known
        return known


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, host: str, weights: WeightServer) -> None:
        self.address_family = family_of(host)
        self.weights = weights
        super().__init__((host, 0), _Connection)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that goes away, or is none, is its own matter."""


class _Connection(socketserver.BaseRequestHandler):
    """One client; its thread ends with the connection."""

    request: socket.socket
    server: _Server

    def handle(self) -> None:
        weights = self.server.weights
        if not weights.entered(self.request):
            return
        try:
            number = self._greet(weights)
            if number is not None:
                self.request.settimeout(_IDLE_SECONDS)
                while self._answer(weights, number):
                    pass
        except OSError:  # the client has gone, or the weights were withdrawn
            pass
        finally:
            weights.left(self.request)

    def _greet(self, weights: WeightServer) -> int | None:
        """Return the number of the weights that a client may have."""
        self.request.settimeout(_HELLO_SECONDS)
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        nonce = secrets.token_bytes(wire.NONCE_BYTES)
        self.request.sendall(wire.MAGIC + nonce)
        number, signed = wire.HELLO.unpack(wire.receive(self.request, wire.HELLO.size))
        status = wire.OK
        if not hmac.compare_digest(signed, wire.signature(weights.key, nonce, number)):
            status = wire.WRONG_KEY
        elif not weights.serves(number):
            status = wire.REPLACED
        self.request.sendall(bytes([status]))
        return number if status == wire.OK else None

    def _answer(self, weights: WeightServer, number: int) -> bool:
        """Answer one request; False if there are no more, or the weights are gone."""
        index, offset, length = wire.REQUEST.unpack(wire.receive(self.request, wire.REQUEST.size))
        if index == wire.ASK:
            weights.sources.serve(self.request, self.client_address[0])
        if length > wire.BLOCK or (file := weights.open(number, index)) is None:
            self.request.sendall(wire.ANSWER.pack(wire.REPLACED, 0))
            return False
        with file:
            checksum = weights.checksum(file, offset, length)
            self.request.sendall(wire.ANSWER.pack(wire.OK, checksum))
            return bool(self.request.sendfile(file, offset, length) == length)
