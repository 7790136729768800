"""A machine's part in passing weights on: it asks from whom to fetch, and then serves others."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from rlvr_core.builtin.vllm import tcp_wire as wire
from rlvr_core.builtin.vllm.tcp_server import WeightServer


class Relay:
    """The receiver of a machine that fetches for all others there.

    It goes without where the sender cannot be asked: whoever fetches finds out why.

    Args:
        sender: Where the sender serves.
        key: Its key.
    """

    def __init__(self, sender: wire.Place, key: bytes) -> None:
        self._sender, self._key = sender, key
        self._alone = False
        self._asked: socket.socket | None = None
        self._server: WeightServer | None = None

    def source(self, number: int) -> wire.Place:
        """Return from whom to fetch; waits while all that have the weights are busy.

        Raises:
            RunError: If the weights were replaced.
        """
        self.close()
        if self._alone:
            return self._sender
        try:
            self._asked = wire.connect(self._sender, self._key, number)
            status, length = wire.WAIT, 0
            self._asked.sendall(wire.REQUEST.pack(wire.ASK, 0, 0))
            while status == wire.WAIT:
                status, length = wire.ANSWER.unpack(wire.receive(self._asked, wire.ANSWER.size))
            wire.check(status, number)
            place = wire.receive(self._asked, length)
            return wire.Place(*json.loads(place)) if place else self._sender
        except (OSError, ValueError, TypeError):
            self.close()
            return self._sender

    def serve(
        self,
        number: int,
        files: Sequence[Path],
        obsolete: Callable[[], None],
        *,
        source_failed: bool,
    ) -> None:
        """Serve the files to other machines, until the next ``source`` or ``close``.

        ``obsolete`` is called in another thread when the sender has other weights, or is gone.

        Where another machine could not be fetched from, the sender is not asked again: its way may
        be closed, and finding that out takes seconds each time.
        """
        self._alone = self._alone or source_failed
        if self._asked is None:
            return
        try:
            self._server = WeightServer(self._asked.getsockname()[0], self._key)
            self._server.publish(number, files)
            self._asked.sendall(wire.REQUEST.pack(wire.ASK, self._server.place.port, 0))
            self._asked.settimeout(None)
        except OSError:
            self.close()
            return
        watch = threading.Thread(
            target=self._watch, args=(self._asked, obsolete), name="sender", daemon=True
        )
        watch.start()

    def _watch(self, asked: socket.socket, obsolete: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            asked.recv(1)  # nothing comes but the end
        if self._asked is asked:  # not closed on this side
            obsolete()

    def close(self) -> None:
        """Serve no longer."""
        asked, self._asked = self._asked, None
        if asked is not None:
            with contextlib.suppress(OSError):
                asked.shutdown(socket.SHUT_RDWR)
            asked.close()
        server, self._server = self._server, None
        if server is not None:
            server.close()
