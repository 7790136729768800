"""What the two ends of transport ``tcp`` say to each other.

The server begins with ``MAGIC`` and a nonce. The client answers with the number of the weights it
wants, and a signature of nonce and number: the key itself never crosses the network. After the
status ``OK`` it asks for blocks of files, and each comes with its CRC-32; or from whom to fetch
them (``tcp_sources``).
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from rlvr_core.api import RunError
from rlvr_core.builtin.vllm.addresses import family_of

MAGIC = b"rlvr-w1\n"
NONCE_BYTES = 32
BLOCK = 4 << 20
"""Bytes that are asked for at a time: what a broken connection loses at most."""
HELLO = struct.Struct("!Q32s")
"""The number of the weights, and the signature."""
REQUEST = struct.Struct("!IQI")
"""Number of the file, first byte, and number of bytes."""
ANSWER = struct.Struct("!BI")
"""Status and CRC-32, then the block; to ``ASK`` the number of bytes of a place, then the place."""
ASK = 2**32 - 1
"""Stands for a file: asks from whom to fetch. The second time, on the same connection, it says
that the client has the weights, and its offset is the port at which it serves them."""
OK, WRONG_KEY, REPLACED, WAIT = range(4)

_CONNECT = 10.0
"""Seconds to connect, and most seconds without a byte until a connection counts as broken."""


class GarbledError(OSError):
    """What came is not what a server of weights says, or not as it was sent."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where weights are served.

    Attributes:
        host: IPv4 or IPv6 address.
        port: TCP port.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def signature(key: bytes, nonce: bytes, number: int) -> bytes:
    """Prove that one knows the key."""
    return hmac.digest(key, nonce + number.to_bytes(8, "big"), hashlib.sha256)


def receive_into(connection: socket.socket, into: memoryview, heard: Callable[[], None]) -> None:
    """Fill a buffer from a connection.

    Args:
        connection: With a timeout.
        into: The buffer.
        heard: Called when bytes have come.

    Raises:
        OSError: If it ends before, or nothing comes in time.
    """
    at = 0
    while at < len(into):
        n = connection.recv_into(into[at:])
        if n == 0:
            raise ConnectionError("the connection ended")
        at += n
        heard()


def receive(connection: socket.socket, n: int) -> bytes:
    """Receive so many bytes; see ``receive_into``."""
    received = bytearray(n)
    receive_into(connection, memoryview(received), lambda: None)
    return bytes(received)


def connect(place: Place, key: bytes, number: int) -> socket.socket:
    """Connect to a server of weights.

    Raises:
        OSError: If it cannot be reached.
        GarbledError: If something else answers there, or it has another key.
        RunError: If it has newer weights.
    """
    connection = socket.socket(family_of(place.host))
    try:
        connection.settimeout(_CONNECT)
        connection.connect((place.host, place.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = receive(connection, len(MAGIC) + NONCE_BYTES)
        if not greeting.startswith(MAGIC):
            raise GarbledError("what answers there is no sender of weights")
        nonce = greeting[len(MAGIC) :]
        connection.sendall(HELLO.pack(number, signature(key, nonce, number)))
        check(receive(connection, 1)[0], number)
    except BaseException:
        connection.close()
        raise
    return connection


def check(status: int, number: int) -> None:
    """Check the status that a server gave.

    Raises:
        GarbledError: If it is none, or the key is wrong.
        RunError: If the weights were replaced.
    """
    if status == REPLACED:
        raise replaced(number)
    if status == WRONG_KEY:
        raise GarbledError("the key is refused")
    if status != OK:
        raise GarbledError(f"status {status} does not exist")


def replaced(number: int) -> RunError:
    """The error for weights that are asked for when newer ones were sent."""
    return RunError(
        f"the weights of send {number} are no longer there: newer ones have taken their place",
        where="engine.transport",
        remedy="whoever receives has to be given the newest; a receiver that was thought lost and "
        "comes back late is refused like this",
    )
