"""Progress and time estimates of a wait and of a run."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from rlvr_core.api.progress import work_going_on

STEPS = 10
"""Steps, the newest ones, that the time left is counted from."""
SHOWN_FROM = 2.0
"""Seconds of a wait from which on its time is shown."""


class Waits:
    """The current wait: its progress, its start, and the duration of the last one.

    Args:
        clock: Returns seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._label, self._since = "", clock()
        self._took: dict[str, float] = {}

    def begin(self, label: str) -> None:
        """A wait has ended and another begun; the same one again goes on."""
        if label == self._label:
            return
        now = self._clock()
        if self._label:
            self._took[_kind(self._label)] = now - self._since
        self._label, self._since = label, now

    @property
    def passed(self) -> float:
        """Seconds that it has gone on for; 0 while nothing is waited for."""
        return self._clock() - self._since if self._label else 0.0

    @property
    def text(self) -> str:
        """Return the text to show; empty while nothing is waited for."""
        if not self._label:
            return ""
        passed, before = self.passed, self._took.get(_kind(self._label))
        text = " ".join([self._label, "...", counts()]).rstrip()
        if passed < SHOWN_FROM and (before is None or before < SHOWN_FROM):
            return text
        return f"{text} {span(passed)}" + (f" of about {span(before)}" if before else "")


def counts() -> str:
    """How much is done of the work that goes on: ``12/64 completions, 3/20 problems``."""
    return ", ".join(
        f"{work.done():,}{'' if work.total is None else f'/{work.total:,}'} {work.unit}"
        for work in reversed(work_going_on())
    )


class Pace:
    """How fast steps are done, by when each of the newest was.

    Args:
        clock: Returns seconds that only grow.
        total: Steps of the whole run; 0 while they are not known.
    """

    def __init__(self, clock: Callable[[], float], total: int) -> None:
        self._clock = clock
        self._began = clock()
        self._marks: deque[tuple[int, float]] = deque(maxlen=STEPS + 1)
        self.total, self.done = total, 0

    def reach(self, step: int) -> None:
        """Record the number of steps done; first those before a resume."""
        self.done = step
        self._marks.append((step, self._clock()))

    @property
    def elapsed(self) -> float:
        """Seconds since the display began."""
        return self._clock() - self._began

    @property
    def left(self) -> float | None:
        """Seconds until the last step is done; None while no step of this process is."""
        if len(self._marks) < 2:
            return None
        (first, began), (last, ended) = self._marks[0], self._marks[-1]
        if last <= first:
            return None
        seconds = (ended - began) / (last - first)
        return max(0.0, (self.total - last) * seconds - (self._clock() - ended))


def span(seconds: float) -> str:
    """Return a span of time for people: ``12 s``, ``3:05 min``, ``2:03:05 h``."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d} h" if hours else f"{minutes}:{rest:02d} min"


def _kind(label: str) -> str:
    """Return a label without its numbers."""
    return re.sub(r"\d+", "#", label)
