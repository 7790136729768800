"""Reads keys pressed during a run, in a thread."""

from __future__ import annotations

import os
import select
import termios
import threading
import tty
from collections.abc import Callable
from contextlib import suppress
from typing import Any

LOOK_EVERY = 0.25
"""Seconds between two checks for keys; the thread can end after each."""


class Keys:
    """Calls a function with each key, from a thread; Ctrl-C and Ctrl-Z keep their meaning.

    Args:
        descriptor: The terminal.
        pressed: Called with each key.
    """

    def __init__(self, descriptor: int, pressed: Callable[[str], None]) -> None:
        self._descriptor, self._pressed = descriptor, pressed
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._before: list[Any] | None = None

    def start(self) -> bool:
        """Start reading; return False if this process cannot receive keys."""
        try:
            if not _foreground(self._descriptor):
                return False
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor)
        except (OSError, termios.error):
            return False
        self._thread = threading.Thread(target=self._read, name="rlvr-keys", daemon=True)
        self._thread.start()
        return True

    def close(self) -> None:
        """Restore the terminal; safe to call twice."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        if self._before is not None:
            with suppress(OSError, termios.error):
                if _foreground(self._descriptor):
                    termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
            self._before = None

    def _read(self) -> None:
        # the terminal stops a background process that reads from it
        with suppress(OSError):
            while not self._ended.is_set():
                ready, _, _ = select.select([self._descriptor], [], [], LOOK_EVERY)
                if not ready:
                    continue
                if not _foreground(self._descriptor):
                    self._ended.wait(LOOK_EVERY)
                    continue
                read = os.read(self._descriptor, 64)
                if not read:
                    return
                for key in read.decode("utf-8", "replace"):
                    self._pressed(key)


def _foreground(descriptor: int) -> bool:
    return os.isatty(descriptor) and os.tcgetpgrp(descriptor) == os.getpgrp()
