"""One problem across the steps: an answer of each draw, with what differs from the one before."""

from __future__ import annotations

import difflib
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlvr_view.viewer.index import storable

WHICH = ("best", "worst", "first")
"""Which completion represents a group: highest reward, lowest reward, or sample 0."""
DRAWS = 100
"""Maximum draws to compare; of more, the first half and the last half of this number."""
WORDS = 1500
"""Maximum words of a text to compare."""

_WORD = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")
_ORDER = {"best": "reward DESC, sample", "worst": "reward, sample", "first": "sample"}


@dataclass(frozen=True, slots=True)
class Draw:
    """One time that a problem was drawn.

    Attributes:
        group: The group.
        answer: The completion that represents the group; None if it has none.
        changes: The text in pieces, each ``same``, ``added`` or ``removed``.
        cut: Whether the text is longer than what was compared.
    """

    group: sqlite3.Row
    answer: sqlite3.Row | None
    changes: list[tuple[str, str]]
    cut: bool


def draws(index: sqlite3.Connection, problem: str, which: str) -> tuple[list[Draw], int]:
    """Return the draws of a problem, and how many there are in all."""
    groups = index.execute(
        "SELECT * FROM groups WHERE problem = ? ORDER BY step, id", (storable(problem),)
    ).fetchall()
    half = DRAWS // 2
    some = groups if len(groups) <= DRAWS else [*groups[:half], *groups[-half:]]
    return list(_compared(index, some, which)), len(groups)


def _compared(index: sqlite3.Connection, groups: list[Any], which: str) -> Iterator[Draw]:
    before: list[str] | None = None
    for group in groups:
        answer = index.execute(
            f"SELECT * FROM completions JOIN texts USING (grp, sample) WHERE grp = ? "
            f"ORDER BY {_ORDER[which]} LIMIT 1",
            (group["id"],),
        ).fetchone()
        every = _WORD.findall(answer["text"]) if answer else []
        words = every[:WORDS]
        changes = [("same", "".join(words))] if before is None else list(differ(before, words))
        before = words
        yield Draw(group, answer, changes, len(every) > WORDS)


def differ(before: list[str], after: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the pieces that two texts share and those that only one has, as (kind, text).

    difflib's ``autojunk`` ignores words that are frequent in a long text: without it, comparing the
    texts of a model that repeats itself would take minutes.
    """
    shorter = min(len(before), len(after))
    start = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    left = shorter - start
    end = next((i for i in range(left) if before[-1 - i] != after[-1 - i]), left)
    one_middle, two_middle = before[start : len(before) - end], after[start : len(after) - end]
    if start:
        yield "same", "".join(after[:start])
    matcher = difflib.SequenceMatcher(None, one_middle, two_middle)
    for kind, one_start, one_end, two, two_end in matcher.get_opcodes():
        if kind == "equal":
            yield "same", "".join(two_middle[two:two_end])
            continue
        if one_start < one_end:
            yield "removed", "".join(one_middle[one_start:one_end])
        if two < two_end:
            yield "added", "".join(two_middle[two:two_end])
    if end:
        yield "same", "".join(after[len(after) - end :])
