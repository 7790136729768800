"""Counting and finding, in time linear in the text.

Words from the data are matched as they are written, never as patterns: ``C++`` is not
"C, once or more".
"""

from __future__ import annotations

import re
from typing import Literal

Relation = Literal["less than", "at least"]


def compare(count: int, relation: Relation, threshold: int) -> bool:
    """Whether a count is in the relation to the threshold."""
    return count < threshold if relation == "less than" else count >= threshold


def occurrences(needle: str, text: str) -> int:
    """How often a word or phrase occurs anywhere, in any case, inside longer words too."""
    return sum(1 for _ in re.finditer(re.escape(needle), text, re.IGNORECASE))


def has(needle: str, text: str) -> bool:
    """Whether a word or phrase occurs anywhere, in any case, inside longer words too."""
    return re.search(re.escape(needle), text, re.IGNORECASE) is not None


def has_word(needle: str, text: str) -> bool:
    """Whether a word or phrase occurs, in any case, with no letter or digit right beside it."""
    pattern = rf"(?<!\w){re.escape(needle)}(?!\w)"
    return re.search(pattern, text, re.IGNORECASE) is not None


def placeholders(text: str) -> int:
    """How many ``[...]`` there are, none across lines."""
    count = 0
    for line in text.split("\n"):
        at = line.find("[")
        while at >= 0:
            end = line.find("]", at)
            if end < 0:
                break
            count += 1
            at = line.find("[", end)
    return count


def divided(text: str) -> list[str]:
    """The parts between ``***`` dividers, each divider with one space at either side."""
    return re.split(r"\s?\*\*\*\s?", text)


def filled(parts: list[str]) -> int | None:
    """How many parts there are, empty ones at either end aside; None if one inside is empty."""
    if any(not part.strip() for part in parts[1:-1]):
        return None
    count = len(parts)
    if not parts[0].strip():
        count -= 1
    if len(parts) > 1 and not parts[-1].strip():
        count -= 1
    return count
