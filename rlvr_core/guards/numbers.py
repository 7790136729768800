"""Answers that are plain numbers, and when two of them certainly differ."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

NUMBER = re.compile(r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)")
LONGEST = 30
"""Maximum characters of a text to read as a number."""
SAME = 1e-3
"""Relative difference below which a verifier may treat two numbers as equal."""


@lru_cache(maxsize=8192)  # the same few answers recur
def plain(text: str | None) -> Fraction | None:
    """Return the value of a text that is one number and nothing else; None for others."""
    bare = (text or "").strip().strip("$").rstrip(".").strip()
    if len(bare) > LONGEST or not NUMBER.fullmatch(bare):
        return None
    return Fraction(bare.replace(",", ""))


def differ(one: Fraction, other: Fraction, tolerance: float = 0.0) -> bool:
    """Return whether two numbers are different answers, whatever a verifier's policy.

    A number and its hundredfold may be the same percentage.

    Args:
        one: A number.
        other: Another.
        tolerance: Relative difference that the problem or the config allows.
    """
    if one * 100 == other or other * 100 == one:
        return False
    return abs(one - other) > max(tolerance, SAME) * max(abs(one), abs(other))


def numbers_in(text: str) -> list[str]:
    """Return the numbers in a text, in order, without sign."""
    return [found.lstrip("-+") for found in NUMBER.findall(text)]
