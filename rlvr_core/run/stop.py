"""SIGINT and SIGTERM in a run of several processes: the first one asks, the second one ends.

All processes have to leave the loop at the same step, and a supervisor that takes a machine away
gives notice by a signal. So the first signal is a wish that is granted after the step, with a
checkpoint; before the first step, and with a second signal, the process ends as by Ctrl-C.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Stop:
    """Whether this process was asked to stop.

    Args:
        patient: Whether a first signal only asks.

    Attributes:
        asked: Whether a signal has come.
        stepping: Whether there is a step to finish.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self._patient = patient
        self.asked = False
        self.stepping = False

    def listen(self) -> None:
        """Take over both signals; only the main thread can, and elsewhere nothing is done."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        again, self.asked = self.asked, True
        if again or not (self._patient and self.stepping):
            raise KeyboardInterrupt
