"""A thread that calls a function at regular intervals."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Ticks:
    """Calls a function from a thread until it is closed.

    Args:
        every: Seconds between two calls.
        tick: The function.
    """

    def __init__(self, every: float, tick: Callable[[], None]) -> None:
        self._every, self._tick = every, tick
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlvr-ticks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; safe to call twice."""
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self._tick()
