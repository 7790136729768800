"""Added constraints on single words, letters and marks."""

from __future__ import annotations

import re
from itertools import pairwise

from rlvr_ifeval import matching
from rlvr_ifeval.arguments import (
    AtMost,
    ExcludedKeyword,
    FirstWord,
    Keyword,
    KeywordPosition,
    LastWord,
    Letters,
    TwoKeywords,
)
from rlvr_ifeval.constraint import Family, NoArgs
from rlvr_ifeval.matching import compare
from rlvr_ifeval.rule_sentences import rule_sentences
from rlvr_ifeval.substance import substantial
from rlvr_ifeval.text import sentences, tokens

CONSTRAINTS = Family()
"""All of this family."""


@CONSTRAINTS.add(
    "keywords:no_adjacent_consecutive",
    NoArgs,
    "No word may begin with the letter of the alphabet that follows the one its "
    "predecessor begins with.",
)
def _no_consecutive_letters(response: str, _: NoArgs) -> bool:
    letters = [word[0].lower() for word in response.split()]
    if len(letters) > 1 and any(len(letter) != 1 for letter in letters):
        return False  # one capital letter that is two small ones has no place in the alphabet
    return all(ord(b) - ord(a) != 1 for a, b in pairwise(letters))


@CONSTRAINTS.add(
    "first_word:first_word_sent", FirstWord, "Begin every sentence with the word '{first_word}'."
)
def _first_words(response: str, args: FirstWord) -> bool:
    return all(_is_first_word(part, args) for part in rule_sentences(response))


@CONSTRAINTS.add(
    "first_word:first_word_answer", FirstWord, "Begin the answer with the word '{first_word}'."
)
def _is_first_word(part: str, args: FirstWord) -> bool:
    words = part.split(None, 1)
    return bool(words) and words[0].lower() == args.first_word.lower()


@CONSTRAINTS.add(
    "last_word:last_word_sent",
    LastWord,
    "Let '{last_word}' be the last word of every sentence, before punctuation.",
)
def _last_words(response: str, args: LastWord) -> bool:
    return all(_is_last_word(part, args) for part in rule_sentences(response))


@CONSTRAINTS.add(
    "last_word:last_word_answer", LastWord, "Let '{last_word}' be the last word of the answer."
)
def _is_last_word(part: str, args: LastWord) -> bool:
    words = part.rsplit(None, 1)
    return bool(words) and re.sub(r"[^\w\s]", "", words[-1]).lower() == args.last_word.lower()


@CONSTRAINTS.add("count:count_unique", NoArgs, "Use no word twice.")
def _unique(response: str, _: NoArgs) -> bool:
    pieces = tokens(response)
    return len(set(pieces)) == len(pieces)


@CONSTRAINTS.add(
    "keywords:keyword_specific_position",
    KeywordPosition,
    "Make '{keyword}' word {m} of sentence {n}.",
)
def _positioned(response: str, args: KeywordPosition) -> bool:
    sentences = rule_sentences(response)
    if len(sentences) < args.n:
        return False
    return tokens(sentences[args.n - 1])[args.m - 1 : args.m] == (args.keyword,)


@CONSTRAINTS.add(
    "keywords:start_end",
    NoArgs,
    "Begin and end with the same word, with nothing after it, not even punctuation.",
)
def _start_is_end(response: str, _: NoArgs) -> bool:
    # of a long response only the ends are split into words
    parts = sentences(response)
    if len(parts) < 3:
        pieces = tokens(response)
        return len(pieces) > 1 and pieces[0].lower() == pieces[-1].lower()
    first, last = tokens(parts[0]), tokens(parts[-1])
    return bool(first and last) and first[0].lower() == last[-1].lower()


def _long_palindrome(response: str, _: NoArgs) -> bool:
    return substantial(response) and any(
        len(word) > 2 and len(set(word)) > 1 and word == word[::-1] for word in response.split()
    )


@CONSTRAINTS.add("keywords:word_once", Keyword, "Use the keyword '{keyword}' exactly once.")
def _word_once(response: str, args: Keyword) -> bool:
    return matching.occurrences(args.keyword, response) == 1


@CONSTRAINTS.add(
    "keywords:exclude_word_harder", ExcludedKeyword, "Do not use the word '{keyword}'."
)
def _exclude_word_harder(response: str, args: ExcludedKeyword) -> bool:
    return f" {args.keyword} " not in response


@CONSTRAINTS.add(
    "keywords:palindrome", NoArgs, "Include a palindrome.", has_content=_long_palindrome
)
def _palindrome(response: str, _: NoArgs) -> bool:
    return any(word == word[::-1] for word in response.split())


@CONSTRAINTS.add("punctuation:punctuation_dot", NoArgs, "Do not use periods.")
def _punctuation_dot(response: str, _: NoArgs) -> bool:
    return "." not in response


@CONSTRAINTS.add("punctuation:punctuation_exclamation", NoArgs, "Do not use exclamation marks.")
def _punctuation_exclamation(response: str, _: NoArgs) -> bool:
    return "!" not in response


@CONSTRAINTS.add("count:lowercase_counting", AtMost, "Write at most {N} words in lower case.")
def _lowercase_counting(response: str, args: AtMost) -> bool:
    return len(re.findall(r"\b[a-z]+\b", response)) <= args.N


@CONSTRAINTS.add(
    "count:count_increment_word", TwoKeywords, "Use '{keyword1}' once and '{keyword2}' twice."
)
def _count_increment_word(response: str, args: TwoKeywords) -> bool:
    return (
        matching.occurrences(args.keyword1, response) == 1
        and matching.occurrences(args.keyword2, response) == 2
    )


@CONSTRAINTS.add("letters:letter_counting", Letters, "Write {relation} {N} letters.")
def _letter_counting(response: str, args: Letters) -> bool:
    return compare(len(re.findall("[A-Za-z]", response)), args.relation, args.N)
