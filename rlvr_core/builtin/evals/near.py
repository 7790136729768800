"""Near-duplicates of held-out problems in training data, by containment of word n-grams."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

WORDS = 3
"""Words of an n-gram."""
LEAST = 6
"""Fewest telling n-grams that two problems must share; very short problems are alike by chance."""
SHARE = 0.5
"""Share of one problem's telling n-grams that are in the other, from which they are alike."""
COMMON = 0.01
"""Share of the training problems above which an n-gram belongs to a template, and tells nothing."""
_RARE = 5
"""Training problems that may always share an n-gram."""
_SIZE = 20
"""N-grams of a training problem from which on it may be contained in a held-out one."""
_WORD = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?|[^\w\s,.;:!?'\"$(){}\[\]]")


def near_duplicates(
    held_out: Sequence[str], trained: Iterable[str]
) -> list[tuple[int, float] | None]:
    """Find a training problem that each held-out problem is much like.

    Problems are compared as sets of word 3-grams, whatever the numbers in them. N-grams weigh the
    more the fewer training problems have them, and those of a template that many share weigh
    nothing. Two problems are alike if at least half of the weight of one is in the other, in
    either direction, so that cut and embedded copies are found.

    Args:
        held_out: Prompts without their frames.
        trained: Those of the training data; read once.

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
        # n-grams of the template are in neither
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
