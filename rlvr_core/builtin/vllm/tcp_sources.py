"""From whom a machine fetches weights: the sender, or one that has fetched them.

At most ``EACH`` machines fetch from one, and each of them serves afterwards: those that have the
weights triple in the time of two copies, where the sender alone would serve one after another.
"""

from __future__ import annotations

import json
import socket
import threading

from rlvr_core.builtin.vllm import tcp_wire as wire

EACH = 2
"""Machines that fetch from one at a time: few, that each is done soon and serves; and more than
one, which may be slower than the link."""
_TURN = 5.0
"""Seconds after which a machine that waits is told that the sender is there."""


class Sources:
    """Who serves the newest weights, and how many machines fetch from each; None is the sender."""

    def __init__(self) -> None:
        self._fetching: dict[wire.Place | None, int] = {None: 0}
        self._state = threading.Condition()

    def serve(self, connection: socket.socket, host: str) -> None:
        """Say to a machine from whom to fetch, and send others to it once it has the weights.

        Args:
            connection: Stays open for as long as it fetches, and serves.
            host: Its address.

        Raises:
            OSError: When the connection has ended.
        """
        source = self._lease(connection)
        try:
            place = b"" if source is None else json.dumps([source.host, source.port]).encode()
            connection.sendall(wire.ANSWER.pack(wire.OK, len(place)) + place)
            connection.settimeout(None)
            _, port, _ = wire.REQUEST.unpack(wire.receive(connection, wire.REQUEST.size))
        finally:
            self._change(source, -1)
        own = wire.Place(host, port)
        with self._state:
            self._fetching[own] = 0
            self._state.notify_all()
        try:
            wire.receive(connection, 1)
        finally:
            with self._state:
                del self._fetching[own]

    def _lease(self, connection: socket.socket) -> wire.Place | None:
        """Wait until one may be fetched from, and take the one that does least."""
        while True:
            with self._state:
                if self._state.wait_for(lambda: min(self._fetching.values()) < EACH, _TURN):
                    source = min(self._fetching, key=lambda one: self._fetching[one])
                    self._fetching[source] += 1
                    return source
            connection.sendall(wire.ANSWER.pack(wire.WAIT, 0))

    def _change(self, source: wire.Place | None, by: int) -> None:
        with self._state:
            if source in self._fetching:  # else it has gone
                self._fetching[source] += by
                self._state.notify_all()
