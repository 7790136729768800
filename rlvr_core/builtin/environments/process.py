"""One process that environments run in, seen from the pool: the calls it has been given."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence

from rlvr_core.api import Json
from rlvr_core.api.services import Child, VerifierSpec
from rlvr_core.builtin.environments.worker import GO, SKIP, Call, Setup


class EnvironmentProcess(Child):
    """A process, and the pipe of its tickets: whoever reads a ticket has the call."""

    def __init__(self, specs: Mapping[str, VerifierSpec]) -> None:
        self._take, self._give = os.pipe()
        os.set_blocking(self._take, False)  # for both who read from it
        super().__init__("rlvr_core.builtin.environments.worker", [self._take], Setup(specs))

    def send(self, calls: Sequence[Call]) -> bool:
        """Give it work. False if it is gone."""
        os.write(self._give, GO * len(calls))
        return self.write(list(calls))

    def receive(self, deadline: float) -> list[Json]:
        """The next messages; none if the process ended or the deadline passed.

        Args:
            deadline: ``time.monotonic()`` after which to wait no more.
        """
        while not self.hung_up:
            if not self.connection.poll(max(deadline - time.monotonic(), 0.0)):
                return []
            if lines := self.read():
                return [json.loads(line) for line in lines]
        return []

    def take_back(self) -> int:
        """How many calls it has not begun, and will not."""
        try:
            found = os.read(self._take, 1 << 16)
        except BlockingIOError:
            return 0
        earlier = found.count(SKIP)  # it has yet to go past calls of an earlier batch
        self.skip(earlier)
        return len(found) - earlier

    def skip(self, calls: int) -> None:
        """Let it go past calls that were taken back."""
        if calls:
            os.write(self._give, SKIP * calls)

    def kill(self) -> None:
        """End it and the processes of its group. Does not fail if it is gone; once only."""
        super().kill()
        os.close(self._take)
        os.close(self._give)
