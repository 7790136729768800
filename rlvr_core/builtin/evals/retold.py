"""Problems that were told again: word for word in a frame, or in other words with the same numbers.

Two signs that word n-grams do not see. ``verbatim``: a problem stands in a training prompt as it
is, whatever stands around it. ``retold``: two problems have the same numbers, and many of the same
rare words.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from rlvr_core.builtin.evals.verbatim import Verbatim

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


def told_again(
    held_out: Sequence[str], trained: Iterable[str]
) -> tuple[list[int | None], list[tuple[int, float] | None]]:
    """Find the training problems that tell held-out ones again, in one pass over the training data.

    Args:
        held_out: Prompts without their frames.
        trained: Prompts of the training data without their frames; iterated once.

    Returns:
        For each held-out problem the index of the first prompt that holds it word for word, or
        None; see ``Verbatim``. And the index of the training problem with the same numbers whose
        rare words are most similar, and the cosine of these, or None.
    """
    parts = [sentences(text) for text in held_out]
    verbatim = Verbatim(held_out)
    retold = _Retold([_terms(text, own) for text, own in zip(held_out, parts, strict=True)])
    for row, text in enumerate(trained):
        own = sentences(text)
        verbatim.read(row, text)
        retold.read(row, *_terms(text, own))
    return verbatim.found, retold.found()


class _Retold:
    """Held-out problems with the numbers and many of the rare words of a training problem."""

    def __init__(self, mine: Sequence[tuple[frozenset[str], set[str]]]) -> None:
        self._mine = mine
        self._by_numbers: dict[frozenset[str], list[int]] = defaultdict(list)
        for index, (numbers, _) in enumerate(mine):
            for key in _keys(numbers):
                self._by_numbers[key].append(index)
        self._counts: Counter[str] = Counter()
        self._candidates: list[tuple[int, int, frozenset[str], set[str]]] = []
        self._total = 0

    def read(self, row: int, numbers: frozenset[str], words: set[str]) -> None:
        """Take the terms of the next training problem."""
        self._total = row + 1
        self._counts.update(words | numbers)
        for index in {one for key in _keys(numbers) for one in self._by_numbers.get(key, ())}:
            both = len(numbers & self._mine[index][0])
            if both >= NUMBERS * len(numbers | self._mine[index][0]):
                self._candidates.append((row, index, numbers, words))

    def found(self) -> list[tuple[int, float] | None]:
        """Return the most similar training problem of each, now that it is known what is rare."""
        found: list[tuple[int, float] | None] = [None] * len(self._mine)
        for row, index, numbers, words in self._candidates:
            own_numbers, own_words = self._mine[index]
            common = self._rarity(words & own_words)
            if common < RARITY or self._rarity(numbers & own_numbers) < NUMBER_RARITY:
                continue
            share = common / math.sqrt(self._rarity(words) * self._rarity(own_words))
            known = found[index]
            if share >= WORDS and (known is None or share > known[1]):
                found[index] = (row, share)
        return found

    def _rarity(self, words: AbstractSet[str]) -> float:
        return sum(math.log((self._total + 1) / (self._counts[word] + 1)) for word in sorted(words))


def _terms(text: str, parts: Iterable[str]) -> tuple[frozenset[str], set[str]]:
    """Return the numbers and the stems of the words in a text's sentences; numbers may be spelt.

    A text with formulas has none: their signs would count as words.
    """
    if "\\" in text:
        return frozenset(), set()  # formulas are no words
    numbers, words = set(), set()
    for token in " ".join(parts).split():
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
