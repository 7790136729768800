"""Numbers that are spelt out in English: ``twenty-one``, ``five hundred``, ``two thirds``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

_UNITS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
    *("eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SMALL = {name: value for value, name in enumerate(_UNITS)}
SMALL |= {name: 10 * place for place, name in enumerate(_TENS, 2)}
SCALES = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1000,
    "lakh": 10**5,
    "million": 10**6,
    "crore": 10**7,
    "billion": 10**9,
    "trillion": 10**12,
}
"""Words that multiply the number in front of them."""
PARTS = {
    "half": 2,
    "halves": 2,
    "third": 3,
    "quarter": 4,
    "fourth": 4,
    "fifth": 5,
    "sixth": 6,
    "seventh": 7,
    "eighth": 8,
    "ninth": 9,
    "tenth": 10,
    "hundredth": 100,
    "thousandth": 1000,
}
PARTS |= {f"{name}s": value for name, value in PARTS.items() if name not in ("half", "halves")}
"""Words for the denominator of a fraction."""
_MOST_WORDS = 20
_GLUED = re.compile(
    rf"({'|'.join(_TENS)}|one)-?({'|'.join([*_UNITS[1:10], 'hundred'])})\Z", re.IGNORECASE
)


def is_number_word(word: str) -> bool:
    """Whether a word, hyphens allowed, spells a number or a part of one."""
    parts = word.casefold().split("-")
    return all(part in SMALL or part in SCALES for part in parts)


def value(words: Sequence[str]) -> Fraction | None:
    """Return the number that words spell: ``["one", "hundred", "and", "five"]`` is 105."""
    words = [part for word in words for part in word.casefold().split("-") if part]
    if not words or len(words) > _MOST_WORDS:
        return None
    if words == ["half"] or words[:2] in (["a", "half"], ["one", "half"]):
        return Fraction(1, 2) if len(words) <= 2 else None
    if words[-3:] == ["and", "a", "half"]:
        whole = value(words[:-3])
        return None if whole is None else whole + Fraction(1, 2)
    if words[-1] in PARTS and len(words) > 1:
        top = Fraction(1) if words[:-1] in (["a"], ["one"]) else value(words[:-1])
        plain = top is not None and top.denominator == 1
        return top / PARTS[words[-1]] if top is not None and plain else None
    return _whole(words)


def _whole(words: list[str]) -> Fraction | None:
    total = group = 0
    at_least_one = False
    last = 0
    for at, word in enumerate(words):
        if word in SMALL:
            number = SMALL[word]
            if last and not (last >= 100 or (last >= 20 and number < 10)):
                return None  # "five six"
            group += number
            last = number or 1
        elif word in SCALES:
            scale = SCALES[word]
            group = max(group, 1) * scale
            if scale >= 1000:
                total, group = total + group, 0
            last = scale
        elif not _silent(words, at, last):
            return None
        else:
            continue
        at_least_one = True
    return Fraction(total + group) if at_least_one else None


def _silent(words: list[str], at: int, last: int) -> bool:
    """Whether a word says nothing: ``a`` hundred, five hundred ``and`` two."""
    if words[at] == "a":
        return at == 0 and len(words) > 1 and words[1] in SCALES
    return words[at] == "and" and last >= 100 and at + 1 < len(words)


def spelt(text: str) -> Fraction | None:
    """The number that a short text spells, with or without spaces; None if it spells none."""
    text = text.strip().casefold()
    negative = text.startswith("-")
    words = text.removeprefix("-").replace(",", " ").split()
    if len(words) == 1 and (glued := _GLUED.match(words[0])):
        words = [glued[1], glued[2]]
    number = value(words) if words != ["half"] else None
    return -number if number is not None and negative else number
