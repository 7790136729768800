"""Which thread of the program may speak to the tests."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Turn:
    """The right to speak on the wire, which one thread has at a time.

    The thread that serves the tests has it but while it does what they ask for. So others, which
    call the tests back, speak only then, and each hears the answer to its own question.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner != me:
            self._lock.acquire()
            self._owner = me
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()

    @contextlib.contextmanager
    def given_up(self) -> Iterator[None]:
        """Let other threads speak for a while."""
        me, depth = self._owner, self._depth
        self._owner, self._depth = None, 0
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()
            self._owner, self._depth = me, depth
