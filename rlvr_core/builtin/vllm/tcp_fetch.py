"""The fetching end of transport ``tcp``: files, block by block, by several connections."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlvr_core.api import RlvrError, RunError
from rlvr_core.builtin.vllm import tcp_wire as wire
from rlvr_core.builtin.vllm.files import no_room

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
"""Seconds before a connection that broke is made again; doubled each time."""
_MOST_GARBLED = 20
"""Blocks that may come changed, and answers that are none, in one transfer."""


@dataclass(frozen=True, slots=True)
class _Block:
    file: int
    offset: int
    length: int


class Fetch:
    """One transfer.

    Args:
        place: Where the files are served.
        sender: Where the sender serves them: who fetches from another machine goes there as soon
            as that one fails.
        key: The key that is asked for at both.
        number: Of the weights.
        files: Where each file is to be written, and its size.
        connections: How many are used at a time.
        timeout: Seconds without a byte until the transfer is given up.

    Attributes:
        fell_back: Whether another machine failed and the sender took its place.
    """

    def __init__(
        self,
        place: wire.Place,
        sender: wire.Place,
        key: bytes,
        number: int,
        files: Sequence[tuple[Path, int]],
        connections: int,
        timeout: float,
    ) -> None:
        self._place, self._sender, self._key, self._number = place, sender, key, number
        self._files, self._timeout = files, timeout
        self._waiting = deque(
            _Block(index, offset, min(wire.BLOCK, size - offset))
            for index, (_, size) in enumerate(files)
            for offset in range(0, size, wire.BLOCK)
        )
        self._left = len(self._waiting)
        self._connections = min(connections, self._left)
        self.fell_back = False
        self._outputs: list[int] = []
        self._state = threading.Condition()
        self._error: RlvrError | None = None
        self._open: set[socket.socket] = set()
        self._cause, self._garbled = "nothing came", 0
        self._heard = time.monotonic()

    def run(self) -> None:
        """Fetch everything.

        Raises:
            RunError: If nothing came for too long, too much came changed, or the weights were
                replaced.
            MachineError: If there is no room for them.
        """
        threads = [
            threading.Thread(target=self._work, name="fetch-weights", daemon=True)
            for _ in range(self._connections)
        ]
        with contextlib.ExitStack() as opened:
            for path, _ in self._files:
                self._outputs.append(opened.enter_context(path.open("wb", buffering=0)).fileno())
            for one in threads:
                one.start()
            try:
                self._wait()
            finally:
                self._end(threads)
        if self._error is not None:
            raise self._error

    def _wait(self) -> None:
        with self._state:
            while self._left and self._error is None:
                self._state.wait(0.2)
                silent = time.monotonic() - self._heard
                if silent > self._timeout:
                    self._error = RunError(
                        f"weights from {self._place} did not come: nothing for "
                        f"{self._timeout:g} s ({self._cause})",
                        where="engine.transport",
                        remedy=(
                            "this machine has to reach that address; if the trainer is gone, "
                            "rlvr run --resume goes on from the last checkpoint",
                            "engine.transport: {use: tcp, with: {timeout: ...}} waits longer",
                        ),
                    )

    def _end(self, threads: Sequence[threading.Thread]) -> None:
        """End the threads: none may write when the files are closed."""
        with self._state:
            if self._left:
                self._error = self._error or RunError("the transfer was interrupted")
            connections = list(self._open)
            self._state.notify_all()
        for one in connections:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()

    # -- in each thread --------------------------------------------------------------------------

    def _work(self) -> None:
        pause = _FIRST_PAUSE
        while not self._over():
            before, place = self._left, self._place
            try:
                self._use_connection(place)
            except (OSError, RlvrError) as error:
                if place != self._sender:
                    self._place, self.fell_back = self._sender, True
                    continue
                self._note(error)
            except Exception as error:
                self._fail(RunError(f"fetching weights failed: {type(error).__name__}: {error}"))
            with self._state:
                if self._left < before:
                    pause = _FIRST_PAUSE
                self._state.wait_for(lambda: self._error is not None or not self._left, pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _use_connection(self, place: wire.Place) -> None:
        connection = wire.connect(place, self._key, self._number)
        with self._state:
            self._open.add(connection)
        try:
            buffer = memoryview(bytearray(wire.BLOCK))
            while (block := self._take()) is not None:
                try:
                    self._read(connection, block, buffer[: block.length])
                except BaseException:
                    with self._state:
                        self._waiting.appendleft(block)
                        self._state.notify_all()
                    raise
                with self._state:
                    self._left -= 1
                    self._state.notify_all()
        finally:
            with self._state:
                self._open.discard(connection)
            connection.close()

    def _read(self, connection: socket.socket, block: _Block, buffer: memoryview) -> None:
        """Receive one block, check it, and write it to its place."""
        connection.sendall(wire.REQUEST.pack(block.file, block.offset, block.length))
        status, checksum = wire.ANSWER.unpack(wire.receive(connection, wire.ANSWER.size))
        wire.check(status, self._number)
        wire.receive_into(connection, buffer, self._hear)
        if zlib.crc32(buffer) != checksum:
            raise wire.GarbledError("a block has another checksum than was sent")
        at = block.offset
        try:
            while buffer:
                n = os.pwrite(self._outputs[block.file], buffer, at)
                buffer, at = buffer[n:], at + n
        except OSError as error:
            path, _ = self._files[block.file]
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                needed = sum(size for _, size in self._files)
                raise no_room(needed, [path.parent], f": {error}") from error
            raise RunError(f"weights cannot be written to {path}: {error}") from error

    def _take(self) -> _Block | None:
        """Take a block; waits for those of other connections, which may break."""
        with self._state:
            self._state.wait_for(lambda: self._waiting or not self._left or self._error)
            return self._waiting.popleft() if self._waiting and not self._error else None

    def _over(self) -> bool:
        with self._state:
            return self._error is not None or not self._left

    def _hear(self) -> None:
        self._heard = time.monotonic()

    def _fail(self, error: RlvrError) -> None:
        with self._state:
            self._error = self._error or error
            self._state.notify_all()

    def _note(self, error: OSError | RlvrError) -> None:
        """Take note of why a connection ended, and give up where another would not help."""
        if isinstance(error, RlvrError):
            self._fail(error)
            return
        with self._state:
            self._cause = str(error) or type(error).__name__
            self._garbled += isinstance(error, wire.GarbledError)
            many = self._garbled > _MOST_GARBLED
        if many:
            self._fail(
                RunError(
                    f"weights from {self._place} did not come: {self._cause}, "
                    f"{self._garbled} times",
                    where="engine.transport",
                    remedy="what lies between this machine and that address changes what passes, "
                    "or another run's sender answers there",
                )
            )
