"""IFBench's constraints on words, letters and proportions, as its own script judges them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from rlvr_ifeval.constraint import NoArgs
from rlvr_ifeval.ifbench_count import Conjunctions, EveryNth, Pronouns, UniqueWords
from rlvr_ifeval.ifbench_position import Keyword, KeywordAt
from rlvr_ifeval.ifbench_ratio import Overlap, StopWords
from rlvr_ifeval.ifbench_tables import CONJUNCTIONS, PRONOUNS, STOP_WORDS
from rlvr_ifeval.ifbench_words import Repeats
from rlvr_ifeval.official_text import AROUND, plain, sentences, tokens, words
from rlvr_ifeval.official_verb import tagged_as_verb
from rlvr_ifeval.text import words as word_runs

_ALPHABET = string.ascii_lowercase
_VOWELS = frozenset("aeiou")
_CLUSTER = re.compile("[bcdfghjklmnpqrstvwxyz]{2}")
_JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
_PRIMES = frozenset(
    number
    for number in range(2, 98)
    if all(number % factor for factor in range(2, number))
)  # fmt: skip
"""Up to 97: a longer word has no prime length."""
_TOLERANCE = 2


def unique_words(response: str, args: UniqueWords) -> bool:
    """A run of punctuation counts as one word more."""
    return len({word.strip(AROUND) for word in response.lower().split()}) >= args.N


def conjunctions(response: str, args: Conjunctions) -> bool:
    """Each spelling counts: ``And``, ``and`` and ``and,`` are three."""
    used = {word for word in response.split() if word.strip(AROUND).lower() in CONJUNCTIONS}
    return len(used) >= args.small_n


def japanese(response: str, args: EveryNth) -> bool:
    """Every word whose turn it is has a kana or a kanji, unless it is a number or a mark."""
    due = (word.strip(AROUND) for word in response.split()[args.N - 1 :: args.N])
    return all(_JAPANESE.search(word) for word in due if word and not word.isdigit())


def pronouns(response: str, args: Pronouns) -> bool:
    """A pronoun is a token of its own; a typographic apostrophe separates none."""
    found = tokens(response.replace("/", " ").lower())
    return sum(token in PRONOUNS for token in found) >= args.N


def stop_words(response: str, args: StopWords) -> bool:
    """The share in floating point: 7 of 25 words are a little more than 28 per cent."""
    found = word_runs(response)
    stop = sum(word.lower() in STOP_WORDS for word in found)
    return bool(found) and stop / len(found) * 100 <= args.percentage


def overlap(response: str, args: Overlap) -> bool:
    """The share in floating point, of triples of characters."""
    own, theirs = (
        {t[at : at + 3] for at in range(len(t) - 2)} for t in (response, args.reference_text)
    )
    if not own:
        return False
    share = len(own & theirs) / len(own)
    return args.percentage - _TOLERANCE <= share * 100 <= args.percentage + _TOLERANCE


def _ends(response: str, mark: str) -> int:
    return sum(sentence.endswith(mark) for sentence in sentences(response))


def two_to_one(response: str, _: NoArgs) -> bool:
    """Full stops and question marks of ASCII end sentences; nothing may stand behind them."""
    return _ends(response, ".") == 2 * _ends(response, "?")


def balanced(response: str, _: NoArgs) -> bool:
    """The same with exclamation marks."""
    return len({_ends(response, mark) for mark in ".?!"}) == 1


def three_sentences(response: str, _: NoArgs) -> bool:
    """Three sentences of one length; the words are not looked at."""
    found = sentences(response)
    return len(found) == 3 and len({len(sentence.strip()) for sentence in found}) == 1


def alphabet(response: str, _: NoArgs) -> bool:
    """An accented first letter is no letter of the alphabet."""
    letters = [word[0] for word in words(response)]
    if not letters or letters[0].lower() not in _ALPHABET:
        return False
    # The first letter is lowered alone, the others within their words.
    rest = [word.lower()[0] for word in words(response)[1:]]
    start = _ALPHABET.index(letters[0].lower())
    return all(
        letter == _ALPHABET[(start + number) % len(_ALPHABET)]
        for number, letter in enumerate(rest, 1)
    )


def vowels(response: str, _: NoArgs) -> bool:
    """An accented vowel is no vowel."""
    paragraph = response.strip()
    return "\n" not in paragraph and len(_VOWELS.intersection(paragraph.lower())) <= 3


def consonants(response: str, _: NoArgs) -> bool:
    """A mark that stands alone is a word without consonants."""
    return all(map(_CLUSTER.search, response.lower().split()))


def palindromes(response: str, _: NoArgs) -> bool:
    """Ten, the same one ten times too."""
    found = words(response.lower())
    return sum(len(word) >= 5 and word == word[::-1] for word in found) >= 10


def prime_lengths(response: str, _: NoArgs) -> bool:
    """A text without words passes."""
    return all(len(word) in _PRIMES for word in words(response))


def repeats(response: str, args: Repeats) -> bool:
    """A text without words passes."""
    return all(count <= args.small_n for count in Counter(words(response.lower())).values())


def odd_even(response: str, _: NoArgs) -> bool:
    """A text without words passes."""
    import syllapy

    parities = [syllapy.count(word) % 2 for word in plain(response).lower().split()]
    return all(one != two for one, two in pairwise(parities))


def no_consecutive(response: str, _: NoArgs) -> bool:
    """A text without words passes."""
    return all(one[0] != two[0] for one, two in pairwise(words(response.lower())))


def start_verb(response: str, _: NoArgs) -> bool:
    """The tag of the first token, which may be a mark."""
    return tagged_as_verb(response)


def last_first(response: str, _: NoArgs) -> bool:
    """Marks before a sentence's last word and behind its first one belong to the words."""
    found = sentences(response)
    for one, two in pairwise(found):
        last, first = one.rstrip(AROUND).split(), two.lstrip(AROUND).split()
        if not last or not first or last[-1].lower() != first[0].lower():
            return False
    return True


def paragraph_ends(response: str, _: NoArgs) -> bool:
    """Marks behind the first word and before the last one belong to them."""
    for paragraph in response.split("\n"):
        found = paragraph.strip().lower().strip(AROUND).split()
        if found and found[0] != found[-1]:
            return False
    return True


def keyword_at(response: str, args: KeywordAt) -> bool:
    """Words are tokens with a letter or digit in them: ``don't`` is two."""
    found = sentences(response)
    if len(found) < args.n:
        return False
    said = [token for token in tokens(found[args.n - 1]) if any(map(str.isalnum, token))]
    return len(said) >= args.m and said[args.m - 1].lower() == args.keyword.strip().lower()


def second_and_second_to_last(response: str, args: Keyword) -> bool:
    """Words are tokens, marks among them; one closing mark is left out."""
    found, keyword = tokens(response), args.keyword.strip().lower()
    last = -3 if found and found[-1] in string.punctuation else -2
    return len(found) >= -last and found[1].lower() == found[last].lower() == keyword


OFFICIAL: dict[str, Callable[[str, Any], bool]] = {
    "count:unique_word_count": unique_words,
    "count:conjunctions": conjunctions,
    "count:words_japanese": japanese,
    "count:pronouns": pronouns,
    "ratio:stop_words": stop_words,
    "ratio:overlap": overlap,
    "ratio:sentence_type": two_to_one,
    "ratio:sentence_balance": balanced,
    "ratio:sentence_words": three_sentences,
    "words:alphabet": alphabet,
    "words:vowel": vowels,
    "words:consonants": consonants,
    "words:palindrome": palindromes,
    "words:prime_lengths": prime_lengths,
    "words:repeats": repeats,
    "words:odd_even_syllables": odd_even,
    "words:no_consecutive": no_consecutive,
    "words:start_verb": start_verb,
    "words:last_first": last_first,
    "words:paragraph_last_first": paragraph_ends,
    "words:keywords_specific_position": keyword_at,
    "words:words_position": second_and_second_to_last,
}
"""The checks of this family that differ from a strict reading of the instruction."""
