"""Between a client and a server: passes requests on, and now and then does not."""

from __future__ import annotations

import http.client
import random
import socket
import struct
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KINDS = ("500", "503", "reset", "lost", "timeout", "truncated", "slow", "cut", "altered")
"""``truncated`` is an answer that breaks off, ``cut`` a request that does, ``altered`` an upload
whose checksum is not its content's any more."""
SLOW_DOWN = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Less.</Message></Error>"
ALTERED = b"<?xml version='1.0'?><Error><Code>BadDigest</Code><Message>No.</Message></Error>"
INTERNAL = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>Oh.</Message></Error>"


class Proxy:
    """A proxy that spoils a share of the requests.

    Half of the errors come before the server has seen the request, half after it has acted on it.
    """

    def __init__(self, port: int, stall: float = 3.0) -> None:
        self.rate = 0.0
        self.kinds: tuple[str, ...] = KINDS
        self.down = False
        self.done: Counter[str] = Counter()
        self.requests: list[tuple[str, str]] = []
        self.stall = stall
        self._random = random.Random(0)
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (ConnectionError, TimeoutError):
                    self.close_connection = True

            def _any(self) -> None:
                fault = proxy.choose()
                if fault == "cut":
                    self.rfile.read(int(self.headers.get("Content-Length", 0)) // 2)
                    return self._reset()
                body = self._body()
                proxy.requests.append((self.command, self.path))
                early = proxy.coin()
                if fault == "down" or fault == "reset" or (fault == "500" and early):
                    return self._spoil(fault)
                if fault == "503" or (fault == "altered" and self.command == "PUT" and body):
                    return self._spoil(fault)
                if fault == "timeout" and early:
                    time.sleep(proxy.stall)
                    return self._reset()
                answer, data = proxy.forward(port, self, body)
                if fault in ("500", "lost"):
                    return self._spoil(fault)
                if fault == "timeout":
                    time.sleep(proxy.stall)
                    return self._reset()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                        self.send_header(name, value)
                if self.command != "HEAD" and answer.getheader("content-length") is None:
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command == "HEAD":
                    return None
                if fault == "truncated" and data:
                    self.wfile.write(data[: len(data) // 2])
                    return self._reset()
                if fault == "slow":
                    for begin in range(0, len(data), max(1, len(data) // 8)):
                        self.wfile.write(data[begin : begin + max(1, len(data) // 8)])
                        self.wfile.flush()
                        time.sleep(0.05)
                    return None
                self.wfile.write(data)
                return None

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

            def _spoil(self, fault: str) -> None:
                if data := {"500": INTERNAL, "503": SLOW_DOWN, "altered": ALTERED}.get(fault):
                    self.send_response(400 if fault == "altered" else int(fault))
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(data)
                    return
                self._reset()

            def _reset(self) -> None:
                self.close_connection = True
                self.wfile.flush()
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()

            def _body(self) -> bytes:
                if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                    parts = []
                    while size := int(self.rfile.readline().split(b";")[0], 16):
                        parts.append(self.rfile.read(size))
                        self.rfile.readline()
                    while self.rfile.readline().strip():
                        pass
                    return b"".join(parts)
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def choose(self) -> str | None:
        with self._lock:
            fault = None
            if self.down:
                fault = "down"
            elif self._random.random() < self.rate:
                fault = self._random.choice(self.kinds)
            self.done[fault or "passed"] += 1
            return fault

    def coin(self) -> bool:
        with self._lock:
            return self._random.random() < 0.5

    @staticmethod
    def forward(port, handler, body):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {
            name: value
            for name, value in handler.headers.items()
            if name.lower() not in ("transfer-encoding", "expect", "connection", "content-length")
        }
        connection.request(handler.command, handler.path, body=body, headers=headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer, data

    def calm(self) -> None:
        """No more faults."""
        self.rate, self.down, self.kinds = 0.0, False, KINDS

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
