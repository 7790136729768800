"""The parent's side of one sandbox server: a process that runs one program after the other."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from rlvr_code.inside import frames
from rlvr_code.sandbox.launch import Launched, Plan, launch
from rlvr_code.sandbox.limits import Limits, Reason, Result
from rlvr_core.api import RunError

START_SECONDS = 60.0
GRACE_SECONDS = 10.0
"""Time beyond its limit after which a server that has not ended a program is given up."""
_LONGEST = 64 << 20


class BrokenError(RunError):
    """A server that does not answer any more, or never did."""


class Server:
    """Starts a server and speaks with it. Not for several threads at once.

    Raises:
        BrokenError: If it does not start.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        try:
            self._launched: Launched = launch(plan)
        except OSError as error:
            raise BrokenError(f"the sandbox {plan.variant} does not start: {error}") from error
        process = self._launched.process
        self._in = process.stdin.fileno()  # type: ignore[union-attr]
        self._out = process.stdout.fileno()  # type: ignore[union-attr]
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._splitter = frames.Splitter(_LONGEST)
        self._events: deque[tuple[bytes, bytes]] = deque()
        self.alive = True
        try:
            kind, body = self.wait(time.monotonic() + START_SECONDS)
            if kind != frames.READY:
                raise BrokenError(body.decode(errors="replace"))
        except BrokenError as error:
            self.close()
            raise BrokenError(f"the sandbox {plan.variant} does not start: {error}") from error

    def fileno(self) -> int:
        """Readable when there is news."""
        return self._out

    @property
    def pid(self) -> int:
        """Number of the process that was started; all others descend from it."""
        return self._launched.process.pid

    @property
    def pending(self) -> bool:
        """Whether frames are here already."""
        return bool(self._events)

    def send(self, kind: bytes, body: bytes = b"") -> None:
        """Send a frame, taking in what comes meanwhile.

        Raises:
            BrokenError: If it is gone.
        """
        self.send_all((kind, body))

    def send_all(self, *those: tuple[bytes, bytes]) -> None:
        """Send several frames at once.

        Raises:
            BrokenError: If it is gone.
        """
        self._write(b"".join(frames.pack(kind, body) for kind, body in those))

    def open(self, mode: str, code: bytes, files: Mapping[str, bytes], limits: Limits) -> None:
        """Begin a job: hand over a program.

        Raises:
            BrokenError: If the server is gone.
        """
        job = {"mode": mode, "limits": limits.as_job()}
        self.send_all(
            (frames.OPEN, json.dumps(job).encode()),
            (frames.CODE, code),
            *((frames.FILE, name.encode() + b"\0" + content) for name, content in files.items()),
        )

    def close_job(self) -> None:
        """End a job; no program of it may be running."""
        self.send(frames.CLOSE)

    def wait(self, deadline: float) -> tuple[bytes, bytes]:
        """The next frame.

        Raises:
            BrokenError: If none comes until then, or the server is gone.
        """
        while not self._events:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._out], [], [], left)[0]:
                raise BrokenError("it does not answer")
            self.take_in()
        return self._events.popleft()

    def news(self) -> list[tuple[bytes, bytes]]:
        """The frames that have come.

        Raises:
            BrokenError: If the server is gone and there are none.
        """
        self.take_in()
        events = list(self._events)
        self._events.clear()
        return events

    def take_in(self) -> None:
        """Read what is there."""
        try:
            data = os.read(self._out, 1 << 20)
        except BlockingIOError:
            return
        except OSError as error:
            raise BrokenError(str(error)) from error
        if not data and not self._events:
            raise BrokenError(self._last_words())
        try:
            self._events += self._splitter.feed(data)
        except ValueError as error:
            raise BrokenError(str(error)) from error

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._in, view) :]
            except BlockingIOError:
                readable, writable, _ = select.select([self._out], [self._in], [], GRACE_SECONDS)
                if readable:
                    self.take_in()
                elif not writable:
                    raise BrokenError("it takes nothing in") from None
            except OSError as error:
                raise BrokenError(self._last_words()) from error

    def _last_words(self) -> str:
        """Why it is gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._launched.process.wait(1.0)
        errors = self._launched.errors
        errors.seek(0)
        words = errors.read(100_000).decode(errors="replace").strip()
        return words[-2000:] or f"it ended with status {self._launched.process.poll()}"

    def close(self) -> None:
        """End it and everything in it. Safe to call twice."""
        if not self.alive:
            return
        self.alive = False
        launched = self._launched
        for stream in (launched.process.stdin, launched.process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(launched.process.pid, signal.SIGKILL)
        if launched.container is not None:
            tool, name = launched.container
            for way in (["kill"], ["rm", "--force"]):  # the second waits until it is no more
                subprocess.run([tool, *way, name], capture_output=True, timeout=60, check=False)
        with contextlib.suppress(subprocess.TimeoutExpired):
            launched.process.wait(10.0)
        launched.errors.close()
        if launched.folder is not None:
            launched.folder.close()


class Run:
    """One process of the program of the open job: gathers what it does until it ends.

    Args:
        server: With an open job.
        limits: Of the job.
        stdin: What it reads from standard input.
        last: Whether its end is the end of the job.

    Attributes:
        result: Its end, once that has come.
        said: Bytes received on its wire.
    """

    def __init__(
        self, server: Server, limits: Limits, stdin: bytes = b"", *, last: bool = False
    ) -> None:
        self.server = server
        self.result: Result | None = None
        self.said: list[bytes] = []
        self._out: list[bytes] = []
        self._err: list[bytes] = []
        self._nonce = os.urandom(16).hex()
        self.deadline = time.monotonic() + limits.wall_seconds + GRACE_SECONDS
        server.send_all(
            (frames.START, stdin),
            (frames.NONCE, self._nonce.encode()),
            *([(frames.CLOSE, b"")] if last else []),
        )

    def take(self, kind: bytes, body: bytes) -> None:
        """Take in one frame of the server.

        Raises:
            BrokenError: If the sandbox has ended.
        """
        if kind == frames.OUT:
            self._out.append(body)
        elif kind == frames.ERR:
            self._err.append(body)
        elif kind == frames.SAID:
            self.said.append(body)
        elif kind == frames.END:
            self._end(json.loads(body))
        else:
            raise BrokenError(body.decode(errors="replace"))

    def finish(self) -> Result:
        """Wait for its end.

        Raises:
            BrokenError: If the sandbox ended instead.
        """
        while self.result is None:
            self.take(*self.server.wait(self.deadline))
        return self.result

    def kill(self) -> None:
        """Have it killed; its end is still to come."""
        self.server.send(frames.KILL)

    def output(self) -> tuple[str, str]:
        """Return the text written since the last call."""
        texts = tuple(b"".join(part).decode(errors="replace") for part in (self._out, self._err))
        self._out.clear()
        self._err.clear()
        return texts[0], texts[1]

    def _end(self, report: dict[str, Any]) -> None:
        if report["nonce"] != self._nonce:
            raise BrokenError("the end of another program was reported")
        code, cpu = int(report["code"]), float(report["cpu"])
        reason: Reason = "exit" if code >= 0 else "signal"
        if report["why"]:
            reason = report["why"]
        elif code in (-signal.SIGKILL, -signal.SIGXCPU) and cpu >= 0.5:  # the kernel counts roughly
            reason = "cpu"
        peak_mb, (out, err) = float(report["peak_kb"]) / 1024, report["dropped"]
        wall = float(report["wall"])
        self.result = Result(*self.output(), code, reason, wall, cpu, peak_mb, (out, err))
