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


def moment(device: torch.device) -> Any:
    """Return a moment of the device's work: an event in its stream, or the host's clock."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def elapsed(begun: Any, ended: Any, *, wait: bool = True) -> float:
    """Return the seconds between two moments of one device; waits until the second has come."""
    if isinstance(begun, float):
        return float(ended - begun)
    if wait:
        ended.synchronize()
    return float(begun.elapsed_time(ended) / 1e3)


class PhaseTimer:
    """Adds up the seconds of each phase.

    Args:
        device: Where the phases compute.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._spans: list[tuple[str, Any, Any]] = []

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Around a phase, or a part of it."""
        begun = moment(self._device)
        yield
        self._spans.append((phase, begun, moment(self._device)))

    def seconds(self) -> dict[str, float]:
        """Return the seconds by phase; waits for the GPU."""
        seconds: dict[str, float] = {}
        for _, begun, ended in self._spans[-1:]:
            elapsed(begun, ended)  # when the last has come, all have
        for phase, begun, ended in self._spans:
            seconds[phase] = seconds.get(phase, 0.0) + elapsed(begun, ended, wait=False)
        return seconds
