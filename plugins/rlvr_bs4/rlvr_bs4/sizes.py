"""How much page there is around the content: an axis of its own, apart from difficulty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlvr_bs4.task import SizeName


@dataclass(frozen=True, slots=True)
class Size:
    """A budget for one page.

    Attributes:
        name: What it is called.
        low: Noise is added until a page has so many bytes...
        high: ...to so many, drawn between the two.
        most: No page has more bytes.
        wraps: Elements around the content, at least and at most.
        depth: No element is nested deeper.
        elements: No page has more of them.
        comments: HTML comments.
    """

    name: SizeName
    low: int
    high: int
    most: int
    wraps: tuple[int, int]
    depth: int
    elements: int
    comments: int


SIZES: Mapping[SizeName, Size] = {
    size.name: size
    for size in (
        Size("bare", 0, 0, 8_000, (0, 0), 22, 250, 0),
        Size("small", 3_000, 6_000, 16_000, (1, 3), 28, 300, 2),
        Size("medium", 12_000, 24_000, 36_000, (4, 7), 34, 1_000, 6),
        Size("large", 50_000, 90_000, 110_000, (8, 15), 42, 3_500, 12),
    )
}

INNER = Size("small", 0, 0, 8_000, (0, 1), 24, 150, 1)
"""Any page but the first one: navigation and footer, and no more. The first is the haystack."""
