"""A measured number with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Method = Literal["wilson", "bootstrap", "jackknife", "none"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, what it was taken from, and its 95% interval.

    Attributes:
        value: The estimate; None when nothing was there to take it from.
        n: Independent things (problems) it is an average over.
        low: Lower end; None without an interval.
        high: Upper end.
        method: How the interval was made.
    """

    value: float | None
    n: int
    low: float | None
    high: float | None
    method: Method

    def data(self) -> dict[str, float | int | str | None]:
        """As JSON."""
        return {
            "value": self.value,
            "n": self.n,
            "low": self.low,
            "high": self.high,
            "method": self.method,
        }
