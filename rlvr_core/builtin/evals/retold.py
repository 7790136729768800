"""Problems that were told again: whole sentences elsewhere, or other words around the same numbers.

Two signs that word n-grams do not see. ``verbatim``: the sentences of a problem stand in a training
prompt as they are, among others. ``retold``: two problems have the same numbers, and
many of the same rare words.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

LEAST_WORDS = 12
"""Words that a problem must have for its sentences to identify it."""
LEAST_NUMBERS = 3
"""Different numbers that a problem must have to be known by them."""
NUMBERS = 0.75
"""Share of the numbers of both problems that both must have."""
WORDS = 0.34
"""Cosine of the rare words of two problems above which they tell the same."""
RARITY = 15.0
"""Minimum sum of the rarities of common words, in nats: a few rare words match by chance."""
NUMBER_RARITY = 2.0
"""The same of common numbers: 1, 2 and 3 are in many problems."""
SHORTEST = 3
"""Letters of a word; shorter ones are variables and particles."""

_SENTENCE = re.compile(r"(?<=[.?!:])\s+|\n+")
_TOKEN = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?|[^\w\s,.;:!?'\"$(){}\[\]]")
_WORD = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_ONES = "zero,one,two,three,four,five,six,seven,eight,nine,ten,eleven,twelve,thirteen,fourteen"
_SPELT = {word: str(n) for n, word in enumerate(_ONES.split(","))}
_SPELT |= {
    "twice": "2",
    "double": "2",
    "twenty": "20",
    "thirty": "30",
    "forty": "40",
    "fifty": "50",
}
_ENDINGS = ("ing", "ies", "ed", "es", "s", "ly")


def sentences(text: str) -> list[str]:
    """Return the sentences of a text: case, punctuation and spacing removed, signs kept."""
    found = (_TOKEN.findall(part) for part in _SENTENCE.split(_THOUSANDS.sub("", text.casefold())))
    return [" ".join(words) for words in found if words]


def verbatim(held_out: Sequence[str], trained: Iterable[str]) -> list[int | None]:
    """Find training prompts that hold a problem's sentences, one after the other.

    Args:
        held_out: Prompts without their frames.
        trained: Prompts of the training data; iterated once.

    Returns:
        For each held-out problem the index of the first such prompt, or None. Problems of fewer
        than ``LEAST_WORDS`` words have none.
    """
    parts = [sentences(text) for text in held_out]
    owners: dict[str, list[int]] = defaultdict(list)
    for index, some in enumerate(parts):
        if sum(one.count(" ") + 1 for one in some) >= LEAST_WORDS:
            owners[some[0]].append(index)
    found: list[int | None] = [None] * len(held_out)
    for row, text in enumerate(trained):
        own = sentences(text)
        for at, one in enumerate(own):
            for index in owners.get(one, ()):
                if found[index] is None and own[at : at + len(parts[index])] == parts[index]:
                    found[index] = row
    return found


def retold(held_out: Sequence[str], trained: Iterable[str]) -> list[tuple[int, float] | None]:
    """Find training problems with the same numbers and many of the same rare words.

    Args:
        held_out: Prompts without their frames.
        trained: Prompts of the training data without their frames; iterated once.

    Returns:
        For each held-out problem the index of the most similar training problem and the cosine of
        their rare words, or None.
    """
    mine = [_terms(text) for text in held_out]
    by_numbers: dict[frozenset[str], list[int]] = defaultdict(list)
    for index, (numbers, _) in enumerate(mine):
        for key in _keys(numbers):
            by_numbers[key].append(index)
    counts: Counter[str] = Counter()
    candidates: list[tuple[int, int, frozenset[str], set[str]]] = []
    total = 0
    for row, text in enumerate(trained):
        total = row + 1
        numbers, words = _terms(text)
        counts.update(words | numbers)
        for index in {one for key in _keys(numbers) for one in by_numbers.get(key, ())}:
            both = len(numbers & mine[index][0])
            if both >= NUMBERS * len(numbers | mine[index][0]):
                candidates.append((row, index, numbers, words))
    found: list[tuple[int, float] | None] = [None] * len(held_out)
    for row, index, numbers, words in candidates:
        ours = mine[index][1]
        common = _rarity(words & ours, counts, total)
        if common < RARITY or _rarity(numbers & mine[index][0], counts, total) < NUMBER_RARITY:
            continue
        size = math.sqrt(_rarity(words, counts, total) * _rarity(ours, counts, total))
        share = common / size
        known = found[index]
        if share >= WORDS and (known is None or share > known[1]):
            found[index] = (row, share)
    return found


def _terms(text: str) -> tuple[frozenset[str], set[str]]:
    """Return the numbers and the stems of the words of a text; numbers may be spelt out.

    A text with formulas has none: their signs would count as words.
    """
    if "\\" in text:
        return frozenset(), set()  # formulas are no words
    numbers, words = set(), set()
    for token in _WORD.findall(_THOUSANDS.sub("", text.casefold())):
        number = token if token[0].isdigit() else _SPELT.get(token)
        if number is not None:
            numbers.add(number)
            continue
        if len(token) < SHORTEST:
            continue
        ending = next((e for e in _ENDINGS if token.endswith(e) and len(token) - len(e) >= 3), "")
        words.add(token[: len(token) - len(ending)])
    return frozenset(numbers), words


def _keys(numbers: frozenset[str]) -> set[frozenset[str]]:
    """Return keys of which problems with nearly the same numbers have one in common."""
    if len(numbers) < LEAST_NUMBERS:
        return set()
    if len(numbers) == LEAST_NUMBERS or len(numbers) > 12:
        return {numbers}
    return {numbers, *(numbers - {one} for one in numbers)}


def _rarity(words: AbstractSet[str], counts: Counter[str], total: int) -> float:
    return sum(math.log((total + 1) / (counts[word] + 1)) for word in sorted(words))
