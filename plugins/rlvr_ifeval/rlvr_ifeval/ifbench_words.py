"""IFBench's constraints on every word: letters, lengths, syllables, repetition."""

from __future__ import annotations

import re
import string
from collections import Counter
from itertools import pairwise

from rlvr_ifeval.constraint import Args, Family, NoArgs, Positive
from rlvr_ifeval.ifbench_text import plain, plain_words
from rlvr_ifeval.tagger import starts_with_verb

_ALPHABET = string.ascii_lowercase
_VOWELS = frozenset("aeiou")
_CLUSTER = re.compile("[bcdfghjklmnpqrstvwxyz]{2}")
_KINDS_OF_VOWEL = 3
_PALINDROMES, _PALINDROME_LENGTH = 10, 5
_PRIMES = frozenset((
    2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97,
))  # fmt: skip
"""Up to 97: a longer word has no prime length."""


CONSTRAINTS = Family()
"""All of this family."""


class Repeats(Args):
    """How often a word may be used."""

    small_n: Positive
    """Maximum uses of one word."""


@CONSTRAINTS.add(
    "words:alphabet",
    NoArgs,
    "Begin each word with the letter of the alphabet that follows the first letter of the "
    "word before; A follows Z.",
)
def _alphabet(response: str, _: NoArgs) -> bool:
    """An accented first letter is no letter of the alphabet."""
    letters = [word[0] for word in plain_words(response)]
    if not letters or letters[0].lower() not in _ALPHABET:
        return False
    # The first letter is lowered alone, the others within their words.
    rest = [word.lower()[0] for word in plain_words(response)[1:]]
    start = _ALPHABET.index(letters[0].lower())
    return all(
        letter == _ALPHABET[(start + number) % len(_ALPHABET)]
        for number, letter in enumerate(rest, 1)
    )


@CONSTRAINTS.add(
    "words:vowel",
    NoArgs,
    f"Write one paragraph that uses {_KINDS_OF_VOWEL} of the vowels a, e, i, o, u at most.",
)
def _vowels(response: str, _: NoArgs) -> bool:
    """An accented vowel does not count as a vowel."""
    paragraph = response.strip()
    return "\n" not in paragraph and len(_VOWELS.intersection(paragraph.lower())) <= _KINDS_OF_VOWEL


@CONSTRAINTS.add(
    "words:consonants", NoArgs, "Use only words in which two or more consonants stand together."
)
def _consonants(response: str, _: NoArgs) -> bool:
    """A mark that stands alone is a word without consonants."""
    return all(map(_CLUSTER.search, response.lower().split()))


@CONSTRAINTS.add(
    "words:palindrome",
    NoArgs,
    f"Use {_PALINDROMES} or more words that are palindromes of "
    f"{_PALINDROME_LENGTH} letters or more.",
)
def _palindromes(response: str, _: NoArgs) -> bool:
    """Ten, the same one ten times too."""
    all_words = plain_words(response.lower())
    return (
        sum(len(word) >= _PALINDROME_LENGTH and word == word[::-1] for word in all_words)
        >= _PALINDROMES
    )


@CONSTRAINTS.add(
    "words:prime_lengths", NoArgs, "Use only words whose number of letters is a prime number."
)
def _prime_lengths(response: str, _: NoArgs) -> bool:
    """A text without words passes."""
    return all(len(word) in _PRIMES for word in plain_words(response))


@CONSTRAINTS.add(
    "words:repeats",
    Repeats,
    lambda args: (
        "Use no word twice."
        if args.small_n == 1
        else f"Use no word more than {args.small_n} times."
    ),
)
def _repeats(response: str, args: Repeats) -> bool:
    """A text without words passes."""
    return all(count <= args.small_n for count in Counter(plain_words(response.lower())).values())


@CONSTRAINTS.add(
    "words:odd_even_syllables",
    NoArgs,
    "Let words with an odd and with an even number of syllables take turns.",
)
def _odd_even(response: str, _: NoArgs) -> bool:
    """A text without words passes."""
    import syllapy

    parities = [syllapy.count(word) % 2 for word in plain(response).lower().split()]
    return all(before != after for before, after in pairwise(parities))


@CONSTRAINTS.add(
    "words:no_consecutive", NoArgs, "Let no two neighbouring words begin with the same letter."
)
def _no_consecutive(response: str, _: NoArgs) -> bool:
    """A text without words passes."""
    return all(before[0] != after[0] for before, after in pairwise(plain_words(response.lower())))


@CONSTRAINTS.add("words:start_verb", NoArgs, "Begin the response with a verb.")
def _start_verb(response: str, _: NoArgs) -> bool:
    return starts_with_verb(response)
