"""Seconds of a step's phases; on a GPU by events, since the host is done with a phase long before.

Events stand in the stream among the work of the phases, and are read once, when all of it is done:
to measure makes nobody wait for the device.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch


class PhaseTimer:
    """Adds up the seconds of each phase.

    Args:
        device: Where the phases compute.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._spans: list[tuple[str, Any, Any]] = []

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Around a phase, or a part of it."""
        begun = self._now()
        yield
        self._spans.append((phase, begun, self._now()))

    def seconds(self) -> dict[str, float]:
        """Return the seconds by phase; waits for the GPU."""
        found: dict[str, float] = {}
        for _, _, ended in self._spans[-1:] if self._on_gpu else ():
            ended.synchronize()
        for phase, begun, ended in self._spans:
            spent = begun.elapsed_time(ended) / 1e3 if self._on_gpu else ended - begun
            found[phase] = found.get(phase, 0.0) + spent
        return found

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event
