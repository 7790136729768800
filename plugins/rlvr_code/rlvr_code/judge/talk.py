"""A program that is being served: its messages, and when it breaks the rules."""

from __future__ import annotations

import json
from collections import deque

from rlvr_code.inside import codec, frames, serve
from rlvr_code.judge.outcome import Tally, ended
from rlvr_code.sandbox.limits import Limits
from rlvr_code.sandbox.meter import Timer
from rlvr_code.sandbox.server import Run, Server


class FailedError(Exception):
    """The program did something after which it can pass no more tests."""


class Talk:
    """The parent's side of a program's wire; the job of the server is open.

    Args:
        server: The server.
        limits: Of the program.
        longest: Bytes of the longest message that is put up with.
    """

    def __init__(self, server: Server, limits: Limits, longest: int = codec.LONGEST) -> None:
        self.server = server
        self.run = Run(server, limits)
        self._splitter = frames.Splitter(longest + 1024)
        self._frames: deque[tuple[bytes, bytes]] = deque()

    @property
    def unasked(self) -> bool:
        """Whether messages have come that were not asked for."""
        return bool(self._frames)

    def tell(self, kind: bytes, body: bytes) -> None:
        """Send it a message."""
        self.server.send(frames.TELL, frames.pack(kind, body))

    def take_in(self) -> list[tuple[bytes, bytes]]:
        """The messages that have come.

        Raises:
            FailedError: If a message is too long, or it has ended and there are none.
        """
        for kind, body in self.server.news():
            self.run.take(kind, body)
        return self._messages()

    def wait(self, timer: Timer) -> tuple[bytes, bytes]:
        """The next message.

        Raises:
            FailedError: If it has ended, or none comes in time.
            BusyError: If that is not the program's doing.
        """
        while not self._frames:
            if not timer.ready():
                raise FailedError("time limit")
            self._frames += self.take_in()
        return self._frames.popleft()

    def loaded(self, timer: Timer) -> None:
        """Wait until its top level has run.

        Raises:
            FailedError: If that does not succeed in time.
            BusyError: If that is not the program's doing.
        """
        kind, body = self.wait(timer)
        try:
            message = json.loads(body)
            fine = kind == serve.LOADED and message["ok"] is True
            why = "" if fine else str(message["why"])
        except (ValueError, LookupError, TypeError, RecursionError):
            fine, why = False, "it broke the protocol"
        if not fine:
            raise FailedError(f"the program fails before any test: {why[:200]}")

    def loaded_or_failed(self, timer: Timer, tally: Tally) -> bool:
        """Wait until its top level has run; if that fails, so have all its tests."""
        try:
            self.loaded(timer)
        except FailedError as error:
            while not tally.done:
                tally.add(str(error))
            return False
        return True

    def end(self) -> None:
        """Have it killed if it still runs, and end the job."""
        if self.run.result is None:
            self.run.kill()
            self.run.finish()
        self.server.close_job()

    def _messages(self) -> list[tuple[bytes, bytes]]:
        received, self.run.said = self.run.said, []
        try:
            messages = [message for part in received for message in self._splitter.feed(part)]
        except ValueError as error:
            raise FailedError(str(error)) from error
        if not messages and not self._frames and self.run.result is not None:
            raise FailedError(ended(self.run.result))
        return messages
