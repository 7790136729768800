"""A server that speaks OpenAI's interface and does whatever wrong a test tells it to."""

from __future__ import annotations

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def answer(text: str = "fine", reason: str = "stop", **more: Any) -> dict[str, Any]:
    """A good answer, with 10 tokens sent and 3 received."""
    usage = {"prompt_tokens": 10, "completion_tokens": 3}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "text": text}
    return {"choices": [{**choice, "finish_reason": reason}], "usage": usage, **more}


class Server:
    """``script`` says what happens to each POST in turn; after its end ``then`` does.

    A step is a dict (the body of a 200), a number (that status), ``(status, headers, body)``, or a
    function of the request's body that gives one of those, or takes the connection and gives None.
    """

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.then: Any = lambda body: answer()
        self.models: Any = []
        self.bodies: list[Any] = []
        self.times: list[float] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.at_once = self.most = 0
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                step = outer.models
                self.reply({"data": step} if isinstance(step, list) else step)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.lock:
                    outer.bodies.append(body)
                    outer.times.append(time.monotonic())
                    outer.headers.append(dict(self.headers))
                    outer.paths.append(self.path)
                    step = outer.script.pop(0) if outer.script else outer.then
                    outer.at_once += 1
                    outer.most = max(outer.most, outer.at_once)
                try:
                    self.reply(step(body) if callable(step) else step)
                finally:
                    with outer.lock:
                        outer.at_once -= 1

            def reply(self, step: Any) -> None:
                if step == "hang":
                    time.sleep(5)
                    self.close_connection = True
                    return
                if step == "drip":
                    self.send_response(200)
                    self.send_header("Content-Length", "1000000")
                    self.end_headers()
                    for _ in range(100):
                        self.wfile.write(b" ")
                        time.sleep(0.05)
                    self.close_connection = True
                    return
                if step == "cut":
                    raw = json.dumps(answer()).encode()
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(raw)))
                    self.end_headers()
                    self.wfile.write(raw[: len(raw) // 2])
                    self.close_connection = True
                    return
                if step == "reset":
                    self.connection.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
                    )
                    self.connection.close()
                    self.close_connection = True
                    return
                if isinstance(step, int):
                    step = (step, {}, {"error": {"message": f"told {step}"}})
                if isinstance(step, dict):
                    step = (200, {}, step)
                status, headers, body = step
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # clients that went away

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Stop; no request is answered after it."""
        self.http.shutdown()
        self.http.server_close()
