"""A proxy before an S3 server that spoils requests, kills who asks, and notes who owned what.

Each writer has a proxy of its own, so that it is known who sent what; all share one ``Ledger``, in
which the order of writes to owner objects is the order in which the server executed them.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OWNER = ".owner.json"
FAULTS = {
    "500 before": 3,
    "500 after": 3,
    "503": 3,
    "reset before": 3,
    "lost": 4,
    "timeout before": 1,
    "timeout after": 1,
    "truncated": 2,
    "cut": 2,
    "flipped": 3,
    "flipped upload": 2,
    "twice": 3,
    "later": 3,
}
"""What may happen to a request, with weights. ``lost`` is an answer that never comes, ``truncated``
one that breaks off, ``cut`` a request that does; ``later`` delivers a request once more, when its
sender has long gone on."""


@dataclass
class Ledger:
    """What the server has executed, in order.

    Attributes:
        owners: Place, fencing token, nonce and writer of each write of an owner object.
        late: Changes of a place by who did not own it any more when they were executed.
        faults: How many requests were spoilt, by kind; "passed" for the others.
        kills: Writers killed at a request.
    """

    owners: list[tuple[str, int, str, str]] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    _of: dict[str, str] = field(default_factory=dict)

    def note(self, who: str, method: str, path: str, body: bytes) -> None:
        """Note a change that the server has executed; the caller has the lock."""
        key, _, query = path.partition("?")
        if query.startswith("delete"):
            for one in re.findall(r"<Key>([^<]+)</Key>", body.decode()):
                self.note(who, "DELETE", f"{key.rstrip('/')}/{one}", b"")
            return
        place, _, name = key.rpartition("/")
        if name == OWNER and method == "PUT":
            claim = json.loads(body)
            self.owners.append((place, claim["fence"], claim["nonce"], who))
            self._of[place] = who
            return
        for there, owner in self._of.items():
            inside = key.startswith(there + "/") and ".kept/" not in key and ".probe" not in key
            if inside and owner != who:
                self.late.append(f"{who}: {method} {key}")


@dataclass(frozen=True)
class _Request:
    """The head of a request, kept apart: its handler goes on with the connection's next one."""

    method: str
    path: str
    headers: dict[str, str]

    @classmethod
    def of(cls, asked: BaseHTTPRequestHandler) -> _Request:
        leave = ("transfer-encoding", "expect", "connection", "content-length")
        headers = {n: v for n, v in asked.headers.items() if n.lower() not in leave}
        return cls(asked.command, asked.path, headers)


class FaultyServer:
    """The proxy of one writer.

    Args:
        port: The server's.
        who: Name of the writer.
        seed: Of the faults.
        ledger: Where everything is noted.
        rate: Share of requests that are spoilt.
    """

    def __init__(
        self, port: int, who: str, seed: int, ledger: Ledger, rate: float = 0.25, stall: float = 2.5
    ) -> None:
        self.port, self.who, self.ledger, self.rate, self.stall = port, who, ledger, rate, stall
        self.victim, self.dies_at = 0, 0  # process, and the number of its request
        self._random = random.Random(seed)
        self._count = 0
        self._threads: list[threading.Timer] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (OSError, ValueError):
                    self.close_connection = True

            def _any(self) -> None:
                proxy.handle(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """End, when the last late request was delivered."""
        for thread in self._threads:
            thread.join()
        self._server.shutdown()
        self._server.server_close()

    def handle(self, asked: BaseHTTPRequestHandler) -> None:
        """Answer a request, spoilt or not."""
        with self.ledger.lock:
            self._count += 1
            dies = self.victim and self._count == self.dies_at
            first = self._random.random() < 0.5
            fault = "passed"
            if self._random.random() < self.rate:
                fault = self._random.choices(list(FAULTS), list(FAULTS.values()))[0]
            spot, delay = self._random.random(), self._random.uniform(0.02, 0.6)
            self.ledger.faults[fault] += 1
        length = int(asked.headers.get("Content-Length", 0))
        if fault == "cut":
            asked.rfile.read(length // 2)
            return _reset(asked)
        body = _body(asked, length)
        if dies and first:
            return self._kill(asked)
        if fault in ("500 before", "503"):
            return _error(asked, int(fault[:3]), "SlowDown" if fault == "503" else "InternalError")
        if fault == "timeout before":
            time.sleep(self.stall)
        if fault in ("reset before", "timeout before"):
            return _reset(asked)
        if fault == "flipped upload" and body and asked.command == "PUT":
            return _error(asked, 400, "BadDigest")  # what S3 says: every upload has a checksum
        status, headers, data = self._forward(_Request.of(asked), body)
        if dies:
            return self._kill(asked)
        if fault == "twice":
            status, headers, data = self._forward(_Request.of(asked), body)
        if fault == "later" and asked.command in ("PUT", "POST", "DELETE"):
            timer = threading.Timer(delay, self._quietly, (_Request.of(asked), body))
            self._threads.append(timer)
            timer.start()
        if fault == "500 after":
            return _error(asked, 500, "InternalError")
        if fault == "timeout after":
            time.sleep(self.stall)
        if fault in ("lost", "timeout after"):
            return _reset(asked)
        if fault == "flipped" and data:
            at = int(spot * len(data))
            data = data[:at] + bytes([data[at] ^ 1 << int(spot * 1000) % 8]) + data[at + 1 :]
        asked.send_response(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                asked.send_header(name, value)
        if asked.command != "HEAD" and not any(n.lower() == "content-length" for n, _ in headers):
            asked.send_header("Content-Length", str(len(data)))
        asked.end_headers()
        if asked.command == "HEAD":
            return None
        if fault == "truncated" and data:
            asked.wfile.write(data[: len(data) // 2])
            return _reset(asked)
        asked.wfile.write(data)
        return None

    def _kill(self, asked: BaseHTTPRequestHandler) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.victim, signal.SIGKILL)
            self.ledger.kills += 1
        self.victim = 0
        _reset(asked)

    def _quietly(self, request: _Request, body: bytes) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            self._forward(request, body)

    def _forward(self, request: _Request, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        changes = request.method in ("PUT", "DELETE", "POST")
        with self.ledger.lock if changes else contextlib.nullcontext():
            connection.request(request.method, request.path, body=body, headers=request.headers)
            answer = connection.getresponse()
            data = answer.read()
            if changes and answer.status < 300:
                self.ledger.note(self.who, request.method, request.path, body)
        connection.close()
        return answer.status, answer.getheaders(), data


def _error(asked: BaseHTTPRequestHandler, status: int, code: str) -> None:
    data = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>Oh.</Message></Error>".encode()
    asked.send_response(status)
    asked.send_header("Content-Length", str(len(data)))
    asked.end_headers()
    if asked.command != "HEAD":
        asked.wfile.write(data)


def _reset(asked: BaseHTTPRequestHandler) -> None:
    asked.close_connection = True
    with contextlib.suppress(OSError):
        asked.wfile.flush()
        linger = struct.pack("ii", 1, 0)
        asked.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        asked.connection.close()


def _body(asked: BaseHTTPRequestHandler, length: int) -> bytes:
    if asked.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return asked.rfile.read(length)
    parts = []
    while size := int(asked.rfile.readline().split(b";")[0], 16):
        parts.append(asked.rfile.read(size))
        asked.rfile.readline()
    while asked.rfile.readline().strip():
        pass
    return b"".join(parts)
