"""Frames: one letter, a length, and as many bytes. Spoken on every channel of the sandbox."""

from __future__ import annotations

import os
import struct

_HEAD = struct.Struct("!cI")

# from the parent
OPEN, CODE, FILE, START, NONCE, TELL, KILL, CLOSE = (
    b"O",
    b"C",
    b"F",
    b"S",
    b"N",
    b"T",
    b"K",
    b"X",
)
# to the parent
READY, OUT, ERR, SAID, END, LOST = b"R", b"o", b"e", b"t", b"E", b"L"


class ClosedError(Exception):
    """The other side has closed the channel."""


def pack(kind: bytes, body: bytes = b"") -> bytes:
    """One frame."""
    return _HEAD.pack(kind, len(body)) + body


def send(descriptor: int, kind: bytes, body: bytes = b"") -> None:
    """Write one frame to a blocking descriptor."""
    write_all(descriptor, pack(kind, body))


def write_all(descriptor: int, data: bytes) -> None:
    """Write it all to a blocking descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def receive(descriptor: int) -> tuple[bytes, bytes]:
    """Read one frame from a blocking descriptor, not a byte more.

    Raises:
        ClosedError: At the end of the channel.
    """
    kind, length = _HEAD.unpack(read_exactly(descriptor, _HEAD.size))
    return kind, read_exactly(descriptor, length)


def read_exactly(descriptor: int, length: int) -> bytes:
    """Read so many bytes.

    Raises:
        ClosedError: If the channel ends before.
    """
    parts: list[bytes] = []
    while length:
        part = os.read(descriptor, min(length, 1 << 20))
        if not part:
            raise ClosedError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


class Splitter:
    """Frames out of a stream that comes in pieces.

    Args:
        longest: Longest body that is put up with.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._held = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The frames that are complete now.

        Raises:
            ValueError: If one announces more than is put up with.
        """
        self._held += data
        complete = []
        while len(self._held) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._held)
            if length > self._longest:
                raise ValueError(f"a message of {length:,} bytes")
            end = _HEAD.size + length
            if len(self._held) < end:
                break
            complete.append((kind, bytes(self._held[_HEAD.size : end])))
            del self._held[:end]
        return complete
