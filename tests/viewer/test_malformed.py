"""A thousand malformed requests, byte by byte over a socket: the server stays up, and faultless."""

import random
import re
import socket
import threading
from contextlib import closing, suppress

import pytest

pytest.importorskip("uvicorn")

import uvicorn

from rlvr_core.builtin.viewer.app import application
from rlvr_core.builtin.viewer.index import Cache
from rlvr_core.builtin.viewer.runs import Runs
from tests.reports.made_runs import make_run

ODD = [
    b"%00", b"%ff%fe", b"%", b"%zz", b"..%2f..%2fetc%2fpasswd", b"%ed%a0%80", b"a" * 3000, b"-1",
    b"1e999", b"nan", b"99999999999999999999", b"';DROP TABLE groups;--", b"%E2%80%AE", b"[]", b"",
    b"%0d%0aX-A:%20b", b"\\", b"//", b"0x10", b"1_000", b"\xc3\x28",
]  # fmt: skip
NAMES = [
    b"page", b"step_from", b"step_to", b"reward_from", b"reward_to", b"sort", b"text", b"problem",
    b"group", b"answer", b"marked", b"id", b"which", b"kind", b"whole", b"order", b"outcome", b"%",
]  # fmt: skip
BODIES = [
    b"", b"{", b"[" * 50_000, b'{"key": 1}', b'{"key": "7.15", "favourite": "yes"}', b"\xff\xfe",
    b'{"key": "../x", "note": "n"}', b'{"key": "7.15", "note": ["n"]}', b"null", b"x" * 200_000,
    b'{"key": "7.15/' + b"9" * 400 + b'", "note": 7}', b'"\\ud800"', b"1" * 5000,
]  # fmt: skip
LINES = [
    b"", b"GET", b"GET /", b"GET / HTTP/9.9", b"\x00\x01\x02", b"GET  / HTTP/1.1",
    b"G\xffT / HTTP/1.1", b"GET / HTTP/1.1\r\nHost", b"PRI * HTTP/2.0", b"GET http://[::1 HTTP/1.1",
    b"\x16\x03\x01\x02\x00\x01", b"CONNECT x:1 HTTP/1.1", b"TRACE / HTTP/1.1", b"GET * HTTP/1.1",
]  # fmt: skip


def request(rng, run, port):
    """One malformed request, and whether the server has to be told that it is all."""
    host = b"Host: 127.0.0.1:%d\r\n" % port
    end = b"Connection: close\r\n\r\n"
    kind = rng.randrange(5)
    if kind == 0:
        return rng.choice(LINES) + b"\r\n" + rng.choice([host, b""]) + rng.randbytes(20) + end, True
    place = rng.choice([b"", b"/rollouts", b"/groups/", b"/problem", b"/export", b"/state", b"/no"])
    path = b"/runs/" + rng.choice([run, run, rng.choice(ODD)]) + place
    if place == b"/groups/":
        path += rng.choice(ODD)
    pairs = [rng.choice(NAMES) + b"=" + rng.choice(ODD) for _ in range(rng.randrange(4))]
    head = b"GET " + path + b"?" + b"&".join(pairs) + b" HTTP/1.1\r\n"
    if kind == 1:
        body = rng.choice(BODIES)
        length = rng.choice([len(body), len(body), -1, 10**12, len(body) + 1])
        own = b"Origin: http://127.0.0.1:%d\r\nContent-Length: %d\r\n" % (port, length)
        asked = b"POST /runs/" + run + b"/marks HTTP/1.1\r\n" + host + own + end + body
        return asked, length != len(body)
    if kind == 2:
        odd = rng.choice([b"Host: evil.example\r\n", host + host, b"Host: [::1\r\n", b"", b":\r\n"])
        return head + odd + end, False
    if kind == 3:
        return head + host + b"X: " + b"y" * rng.choice([10, 70_000]) + b"\r\n" + end, False
    return head + host + end, False


def answer(port, asked, ends=False):
    """What comes back, until the server closes the connection."""
    said = b""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as own:
        with suppress(OSError):  # closed before it had heard all
            own.sendall(asked)
            if ends:
                own.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while block := own.recv(65536):
                said += block
    return said


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_thousand_malformed_requests_leave_the_server_up(runs, tmp_path):
    folder = make_run(runs)
    run = folder.path.name.encode()
    bound = socket.create_server(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    app = application(Runs(runs), Cache(tmp_path / "cache"))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    rng, seen = random.Random(0), dict[bytes, int]()
    try:
        for _ in range(1000):
            asked, ends = request(rng, run, port)
            said = answer(port, asked, ends)
            for status in re.findall(rb"^HTTP/1\.1 (\d{3})", said)[:1]:
                seen[status] = seen.get(status, 0) + 1
                assert status < b"500", (asked[:300], said[-600:])
            assert thread.is_alive()
        good = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % port
        said = answer(port, good)
        assert said.startswith(b"HTTP/1.1 200")
        assert b"1 of 1 runs" in said
    finally:
        server.should_exit = True
        thread.join()
    assert not (runs / f"{folder.path.name}.notes.json").exists(), "none of them changed anything"
    assert {b"200", b"400", b"403", b"404"} <= seen.keys(), seen
    assert sum(seen.values()) > 600, "most are answered"
