"""How found values differ from those expected: how far beyond rounding, and in what way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Difference:
    """A comparison.

    Attributes:
        bad: Values outside the band; 0 where they are too few to count.
        n: Values compared.
        worst: Largest difference, in widths of the band.
        factor: What the expected values must be multiplied by to come nearest.
        cosine: Of the two, 1 for the same direction.
    """

    bad: int
    n: int
    worst: float
    factor: float
    cosine: float


def compare(found: Tensor, expected: Tensor, band: Tensor, *, share: float = 0.02) -> Difference:
    """Compare values one by one.

    One value of many may be off, by a rounding that no band foresees; two that are more than the
    given share may not. A NaN is off.
    """
    if not len(found):
        return Difference(0, 0, 0.0, 1.0, 1.0)
    apart = ((found - expected).abs() / band).nan_to_num(nan=1e30)
    bad = int((apart > 1.0).sum())
    counts = bad > share * len(found) and bad >= min(2, len(found))
    both = float(found @ expected)
    squares = float(expected @ expected), float(found @ found)
    factor = both / squares[0] if squares[0] else float("nan")
    product = (squares[0] * squares[1]) ** 0.5
    cosine = both / product if product else float("nan")
    return Difference(bad if counts else 0, len(found), float(apart.max()), factor, cosine)


def described(difference: Difference, what: str) -> str:
    """Say how values differ from something."""
    where = f"{difference.bad} of {difference.n} elements differ"
    if difference.cosine > 0.999:
        return f"{where}, and are {difference.factor:.4g} times {what}"
    if difference.cosine < -0.999:
        return f"{where}, and are of the opposite sign ({difference.factor:.4g} times {what})"
    return f"{where}, with a cosine of {difference.cosine:.3f} to {what} (1 is the same direction)"
