"""Near-duplicates of held-out problems in training data, by containment of word n-grams."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

WORDS = 3
"""Words of an n-gram."""
LEAST = 6
"""Minimum distinctive n-grams that two problems must share; short ones match by chance."""
SHARE = 0.5
"""Minimum share of one problem's distinctive n-grams that are in the other."""
COMMON = 0.01
"""Share of training problems above which an n-gram is template text, with weight 0."""
_RARE = 5
"""Number of training problems that may share an n-gram before it counts as template text."""
_SIZE = 20
"""Minimum n-grams of a training problem to look for it inside a held-out one."""
_WORD = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?|[^\w\s,.;:!?'\"$(){}\[\]]")


def near_duplicates(
    held_out: Sequence[str], trained: Iterable[str]
) -> list[tuple[int, float] | None]:
    """Find the most similar training problem of each held-out problem.

    Problems are compared as sets of word 3-grams, ignoring the numbers in them. An n-gram weighs
    more if fewer training problems have it, and template text that many share weighs nothing. Two
    problems are similar if at least half of the weight of one is in the other, in either direction,
    so that cut and embedded copies are found.

    Args:
        held_out: Prompts without their frames.
        trained: Prompts of the training data without their frames; iterated once.

    Returns:
        For each held-out problem the index of the most similar training problem and the share, or
        None.
    """
    number: dict[tuple[str, ...], int] = {}
    owners: list[list[int]] = []
    mine = [grams(text) for text in held_out]
    for index, found in enumerate(mine):
        for gram in found:
            if gram not in number:
                number[gram] = len(owners)
                owners.append([])
            owners[number[gram]].append(index)
    rows: list[tuple[int, int, list[int]]] = []
    counts: Counter[int] = Counter()
    total = 0
    for row, text in enumerate(trained):
        total = row + 1
        found = grams(text)
        shared = [number[gram] for gram in found if gram in number]
        counts.update(shared)
        if len(shared) >= LEAST:
            rows.append((row, len(found), shared))
    limit = max(_RARE, COMMON * total)
    weight = [
        math.log1p(total / (1 + counts[index])) if counts[index] <= limit else 0.0
        for index in range(len(owners))
    ]
    sizes = [sum(weight[number[gram]] for gram in found) for found in mine]
    best: list[tuple[float, int]] = [(0.0, -1)] * len(held_out)
    for row, size, shared in rows:
        telling = [index for index in shared if weight[index]]
        if len(telling) < LEAST:
            continue
        weights: dict[int, float] = defaultdict(float)
        number_of: Counter[int] = Counter()
        for index in telling:
            for owner in owners[index]:
                weights[owner] += weight[index]
                number_of[owner] += 1
        # n-grams of the template count for neither
        own = size - (len(shared) - len(telling))
        for owner, n_shared in number_of.items():
            if n_shared >= LEAST:
                share = weights[owner] / sizes[owner]
                if own >= _SIZE:
                    share = max(share, n_shared / own)
                best[owner] = max(best[owner], (share, -1 - row))
    return [(-1 - row, share) if share >= SHARE else None for share, row in best]


def grams(text: str) -> set[tuple[str, ...]]:
    """Return the word n-grams of a text: case and punctuation removed, all numbers as one word."""
    words = ["0" if word[0].isdigit() else word for word in _WORD.findall(text.casefold())]
    return set(zip(*(words[start:] for start in range(WORDS)), strict=False))
