"""A metric that a run may report, as its component declares it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, or a family of them.

    A component declares those that it reports under names of its own as a class attribute::

        reports = (Metric("cache/hit_rate", "Share of prompts found in the cache.", "share"),)

    Attributes:
        name: Its name; ``<part>`` stands for any text.
        meaning: What it says, in one sentence.
        unit: What it is counted in.
        better: Which way is better, where one is.
    """

    name: str
    meaning: str
    unit: str
    better: Literal["up", "down"] | None = None
