"""Counts and latencies of each verifier."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from rlvr_core.api import Verdict

RECENT = 10_000
"""Verdicts the percentiles look back on."""


@dataclass(frozen=True, slots=True)
class VerifierStats:
    """What one verifier did so far.

    Attributes:
        calls: Verdicts given.
        seconds: Time spent on them inside the workers.
        p50: Median seconds of a verdict, over the most recent ones.
        p99: 99th percentile of the same.
        unscorable: Verdicts with that status.
        timeouts: Verdicts that passed their deadline.
        errors: Verdicts that failed.
    """

    calls: int
    seconds: float
    p50: float
    p99: float
    unscorable: int
    timeouts: int
    errors: int


@dataclass(slots=True)
class Tally:
    """Collects ``VerifierStats``."""

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    mean: float | None = None

    def add(self, verdict: Verdict, seconds: float) -> None:
        """Count one verdict that took ``seconds``."""
        self.statuses[verdict.status] += 1
        self.seconds += seconds
        self.recent.append(seconds)
        self.mean = seconds if self.mean is None else 0.9 * self.mean + 0.1 * seconds

    def stats(self) -> VerifierStats:
        """The figures now."""
        ordered = sorted(self.recent)
        return VerifierStats(
            calls=sum(self.statuses.values()),
            seconds=self.seconds,
            p50=percentile(ordered, 0.50),
            p99=percentile(ordered, 0.99),
            unscorable=self.statuses["unscorable"],
            timeouts=self.statuses["timeout"],
            errors=self.statuses["error"],
        )


def percentile(ordered: list[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed; 0.0 of none."""
    if not ordered:
        return 0.0
    rank = -(-len(ordered) * share // 1)  # ceiling
    return ordered[max(int(rank), 1) - 1]
