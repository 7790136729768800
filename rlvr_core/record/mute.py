"""The recorder of a process that does not write the run's folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlvr_core.api import Json


class MuteRecorder:
    """Stands in for ``Recorder``: keeps its spans for rank 0 to write, and writes nothing.

    Rollouts and numbers need not be kept, because rank 0 has those of all processes.

    Args:
        rank: This process.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._place = {"step": 0, "version": 0}
        self._spans: list[dict[str, Json]] = []

    def at(self, step: int, version: int) -> None:
        """Set the step and version that spans carry from now on."""
        self._place = {"step": step, "version": version}

    @contextlib.contextmanager
    def span(self, name: str, **args: Json) -> Iterator[None]:
        """Measure how long a block takes."""
        begun, place = time.time(), self._place
        yield
        spent = round(time.time() - begun, 6)
        self._spans.append(
            {"span": name, "time": round(begun, 6), "dur": spent, **place, "rank": self._rank}
            | args
        )

    def take_spans(self) -> list[dict[str, Json]]:
        """Spans since the last call."""
        spans, self._spans = self._spans, []
        return spans

    def spans_of(self, spans: Sequence[Mapping[str, Json]]) -> None:
        """Nothing: rank 0 writes them."""

    def metrics(self, *_: Any) -> None:
        """Nothing."""

    timing = rollout = evaluation = metrics

    def offsets(self) -> dict[str, int]:
        """Nothing: rank 0 writes the checkpoint."""
        return {}

    def rewind(self, offsets: Mapping[str, int]) -> list[str]:
        """Nothing."""
        return []

    def sync(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
