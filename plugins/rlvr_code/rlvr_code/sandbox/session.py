"""A program that goes on: pieces of code run one after the other in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType

from rlvr_code.inside import codec, frames, serve
from rlvr_code.sandbox import answers, meter
from rlvr_code.sandbox.limits import Limits, Reason, Result
from rlvr_code.sandbox.server import BrokenError, Run, Server
from rlvr_core.api import RunError


class Session:
    """Names, imports and files stay from one piece to the next; made by ``Sandbox.session``.

    When a piece ends the process, by a limit or by itself, the next one begins afresh.
    """

    def __init__(
        self,
        server: Server,
        files: Mapping[str, bytes],
        limits: Limits,
        give_back: Callable[[Server], None],
    ) -> None:
        self._server, self._limits, self._give_back = server, limits, give_back
        self._run: Run | None = None
        self._splitter = frames.Splitter(codec.LONGEST + 1024)
        self._cells = 0
        self._open = True
        try:
            server.open("serve", b"", files, limits)
        except BaseException:
            self._abandon()
            raise

    @property
    def fresh(self) -> bool:
        """Whether the next piece begins a new process."""
        return self._run is None

    def run(self, code: str, *, seconds: float | None = None) -> Result:
        """Run a piece of code.

        Args:
            code: Its text.
            seconds: Limit of this piece by the clock, besides those of the session. The time in
                which it waits for a processor does not count.

        Returns:
            What it wrote; ``exit`` is 1 after an exception.
        """
        if not self._open:
            raise RunError("the session is closed")
        began = time.monotonic()
        try:
            return self._cell(code, began, began + (seconds or self._limits.wall_seconds))
        except BrokenError:
            self._abandon()
            return Result("", "", -9, "broke", time.monotonic() - began)

    def close(self) -> None:
        """End the process. Safe to call twice."""
        if not self._open:
            return
        try:
            if self._run is not None and self._run.result is None:
                self._run.kill()
                self._run.finish()
            self._server.close_job()
        except BrokenError:
            self._server.close()
        self._open = False
        self._give_back(self._server)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _cell(self, code: str, began: float, until: float) -> Result:
        if self._run is None:
            self._run = Run(self._server, self._limits)
            self._splitter = frames.Splitter(codec.LONGEST + 1024)
        run = self._run
        limit, family = until, meter.Family([self._server])
        self._cells += 1
        given = [code.encode("utf-8", "surrogatepass"), f"cell {self._cells}"]
        request = {"op": "cell", "to": None, "args": given}
        self._server.send(frames.TELL, frames.pack(serve.ASK, codec.dumps(request)))
        killed = False
        while True:
            status = self._answer(run)
            if status is not None:
                self._settle(run)
                stdout, stderr = run.output()
                return Result(stdout, stderr, status, "exit", time.monotonic() - began)
            if run.result is not None:
                self._run = None
                reason: Reason = "wall" if killed else run.result.reason
                return replace(run.result, reason=reason, seconds=time.monotonic() - began)
            if not killed and time.monotonic() >= until:
                until = limit + (family.look().waited or 0.0)
            if not killed and time.monotonic() >= until:
                killed = True
                run.kill()
            self._listen(run, run.deadline if killed else min(until, run.deadline))

    def _listen(self, run: Run, deadline: float) -> None:
        try:
            run.take(*self._server.wait(deadline))
        except BrokenError:
            if deadline >= run.deadline or not self._server.alive or time.monotonic() < deadline:
                raise

    def _settle(self, run: Run) -> None:
        """Read once more: text written before the answer may arrive after it."""
        for kind, body in self._server.news():
            run.take(kind, body)

    def _answer(self, run: Run) -> int | None:
        """The status of the piece, if that has come."""
        received, run.said = run.said, []
        try:
            for kind, body in [frame for part in received for frame in self._splitter.feed(part)]:
                if kind == serve.ANSWER:
                    status = answers.read(body).get("v", 1)
                    if type(status) is not int or not 0 <= status <= 255:
                        raise ValueError("not a status")
                    return status
        except (ValueError, AttributeError):
            run.kill()
        return None

    def _abandon(self) -> None:
        self._server.close()
        if self._open:
            self._open = False
            self._give_back(self._server)
