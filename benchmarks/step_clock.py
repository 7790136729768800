"""Wall and CPU seconds of training steps and of the phases in them."""

from __future__ import annotations

import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import psutil

PHASES = ("generate", "score", "forward", "backward", "optimizer")


def cpu_seconds() -> float:
    """Of this process and its live children (verifier workers)."""
    total = time.process_time()
    for child in psutil.Process().children(recursive=True):
        times = child.cpu_times()
        total += times.user + times.system
    return total


class Clock:
    """Records one line a step: ``wall``, ``cpu`` and wall seconds by phase."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self._phases: dict[str, float] = defaultdict(float)
        self._begun = (0.0, 0.0)

    def begin(self) -> None:
        """A step begins."""
        self._phases.clear()
        self._begun = (time.perf_counter(), cpu_seconds())

    def end(self) -> None:
        """A step is over."""
        wall, cpu = time.perf_counter() - self._begun[0], cpu_seconds() - self._begun[1]
        self.steps.append({"wall": wall, "cpu": cpu, **self._phases})

    def add(self, phase: str, seconds: float) -> None:
        """Count wall seconds to a phase."""
        self._phases[phase] += seconds

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block as a phase."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - begun)

    def wrap(self, owner: Any, name: str, phase: str | None) -> None:
        """Time a method as a phase, or as a whole step."""
        inner: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if phase is not None:
                with self.phase(phase):
                    return inner(*args, **kwargs)
            self.begin()
            result = inner(*args, **kwargs)
            self.end()
            return result

        setattr(owner, name, timed)
