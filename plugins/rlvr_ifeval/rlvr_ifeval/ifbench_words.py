"""IFBench's constraints on every word: letters, lengths, syllables, repetition."""

from __future__ import annotations

import string
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from math import isqrt

from rlvr_ifeval.constraint import Args, Constraint, NoArgs, Positive
from rlvr_ifeval.ifbench_start_verb import starts_with_verb
from rlvr_ifeval.ifbench_text import bare, plain_words, unaccented

_ALPHABET = string.ascii_lowercase
_VOWELS = frozenset("aeiou")
_CONSONANTS = frozenset(_ALPHABET) - _VOWELS
_KINDS_OF_VOWEL = 3
_PALINDROMES, _PALINDROME_LENGTH = 10, 5


class Repeats(Args):
    """How often a word may be used."""

    small_n: Positive
    """Most uses of one word."""


def _alphabet(response: str, _: NoArgs) -> bool:
    letters = [unaccented(word)[:1].lower() for word in plain_words(response)]
    places = [_ALPHABET.find(letter) for letter in letters if letter]
    if not places or -1 in places:
        return False
    return all(next_one == (one + 1) % len(_ALPHABET) for one, next_one in pairwise(places))


def _vowels(response: str, _: NoArgs) -> bool:
    paragraph = response.strip()
    if "\n" in paragraph:
        return False
    return len(_VOWELS.intersection(unaccented(paragraph).lower())) <= _KINDS_OF_VOWEL


def _consonants(response: str, _: NoArgs) -> bool:
    found = [word for word in response.lower().split() if bare(word)]
    return bool(found) and all(
        any(one in _CONSONANTS and two in _CONSONANTS for one, two in pairwise(word))
        for word in found
    )


def _palindromes(response: str) -> list[str]:
    return [
        word
        for word in plain_words(response.lower())
        if len(word) >= _PALINDROME_LENGTH and word == word[::-1]
    ]


def _ten_palindromes(response: str, _: NoArgs) -> bool:
    return len(_palindromes(response)) >= _PALINDROMES


def _real_palindromes(response: str, _: NoArgs) -> bool:
    real = {word for word in _palindromes(response) if word.isalpha() and len(set(word)) > 1}
    return len(real) >= _PALINDROMES


@lru_cache(maxsize=1_000)
def _is_prime(number: int) -> bool:
    return number > 1 and all(number % factor for factor in range(2, isqrt(number) + 1))


def _prime_lengths(response: str, _: NoArgs) -> bool:
    lengths = {len(word) for word in plain_words(response)}
    return bool(lengths) and all(_is_prime(length) for length in lengths)


def _repeats(response: str, args: Repeats) -> bool:
    counts = Counter(plain_words(response.lower()))
    return bool(counts) and max(counts.values()) <= args.small_n


def _odd_even(response: str, _: NoArgs) -> bool:
    import syllapy

    found = plain_words(response.lower())
    parities = [syllapy.count(word) % 2 for word in found]
    return bool(found) and all(one != two for one, two in pairwise(parities))


def _no_consecutive(response: str, _: NoArgs) -> bool:
    letters = [word[0] for word in plain_words(response.lower())]
    return bool(letters) and all(one != two for one, two in pairwise(letters))


CONSTRAINTS = (
    Constraint(
        "words:alphabet",
        NoArgs,
        _alphabet,
        lambda _: (
            "Begin each word with the letter of the alphabet that follows the first letter of the "
            "word before; A follows Z."
        ),
    ),
    Constraint(
        "words:vowel",
        NoArgs,
        _vowels,
        lambda _: (
            f"Write one paragraph that uses {_KINDS_OF_VOWEL} of the vowels a, e, i, o, u at most."
        ),
    ),
    Constraint(
        "words:consonants",
        NoArgs,
        _consonants,
        lambda _: "Use only words in which two or more consonants stand together.",
    ),
    Constraint(
        "words:palindrome",
        NoArgs,
        _ten_palindromes,
        lambda _: (
            f"Use {_PALINDROMES} or more words that are palindromes of "
            f"{_PALINDROME_LENGTH} letters or more."
        ),
        has_content=_real_palindromes,
    ),
    Constraint(
        "words:prime_lengths",
        NoArgs,
        _prime_lengths,
        lambda _: "Use only words whose number of letters is a prime number.",
    ),
    Constraint(
        "words:start_verb",
        NoArgs,
        lambda response, _: starts_with_verb(response),
        lambda _: "Begin the response with a verb.",
    ),
    Constraint(
        "words:repeats",
        Repeats,
        _repeats,
        lambda args: (
            "Use no word twice."
            if args.small_n == 1
            else f"Use no word more than {args.small_n} times."
        ),
    ),
    Constraint(
        "words:odd_even_syllables",
        NoArgs,
        _odd_even,
        lambda _: "Let words with an odd and with an even number of syllables take turns.",
    ),
    Constraint(
        "words:no_consecutive",
        NoArgs,
        _no_consecutive,
        lambda _: "Let no two neighbouring words begin with the same letter.",
    ),
)
"""All of this family."""

DIFFERENCES = {
    "words:alphabet": "An accent on a first letter is ignored.",
    "words:vowel": "An accented vowel counts as that vowel.",
    "words:consonants": "Punctuation standing alone is not a word without consonants.",
    "words:prime_lengths": "Lengths above 97 can be prime too; a text without words fails.",
    "words:start_verb": (
        "By the first sentence its first word is a verb (imperative, gerund, participle, auxiliary)"
        " or not; upstream asks NLTK's tagger, which takes most imperatives for names. Formatting "
        "marks before the first word are skipped."
    ),
}
"""Where upstream does not do what its instruction says, and what is done here instead."""
