"""The common prefix of two token sequences."""

from __future__ import annotations

from collections.abc import Sequence


def shared_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix of two token sequences."""
    for n, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return n
    return min(len(one), len(other))
