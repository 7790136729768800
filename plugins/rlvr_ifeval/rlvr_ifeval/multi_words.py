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
from rlvr_ifeval.constraint import Constraint, NoArgs
from rlvr_ifeval.matching import compare
from rlvr_ifeval.rule_sentences import rule_sentences
from rlvr_ifeval.substance import substantial
from rlvr_ifeval.text import sentences, tokens


def _no_consecutive_letters(response: str, _: NoArgs) -> bool:
    letters = [word[0].lower() for word in response.split()]
    if len(letters) > 1 and any(len(letter) != 1 for letter in letters):
        return False  # one capital letter that is two small ones has no place in the alphabet
    return all(ord(b) - ord(a) != 1 for a, b in pairwise(letters))


def _first_words(response: str, args: FirstWord) -> bool:
    return all(_is_first_word(part, args) for part in rule_sentences(response))


def _is_first_word(part: str, args: FirstWord) -> bool:
    words = part.split(None, 1)
    return bool(words) and words[0].lower() == args.first_word.lower()


def _last_words(response: str, args: LastWord) -> bool:
    return all(_is_last_word(part, args) for part in rule_sentences(response))


def _is_last_word(part: str, args: LastWord) -> bool:
    words = part.rsplit(None, 1)
    return bool(words) and re.sub(r"[^\w\s]", "", words[-1]).lower() == args.last_word.lower()


def _unique(response: str, _: NoArgs) -> bool:
    pieces = tokens(response)
    return len(set(pieces)) == len(pieces)


def _positioned(response: str, args: KeywordPosition) -> bool:
    sentences = rule_sentences(response)
    if len(sentences) < args.n:
        return False
    return tokens(sentences[args.n - 1])[args.m - 1 : args.m] == (args.keyword,)


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


CONSTRAINTS = (
    Constraint(
        "keywords:no_adjacent_consecutive",
        NoArgs,
        _no_consecutive_letters,
        lambda _: (
            "No word may begin with the letter of the alphabet that follows the one its "
            "predecessor begins with."
        ),
    ),
    Constraint(
        "keywords:word_once",
        Keyword,
        lambda response, args: matching.occurrences(args.keyword, response) == 1,
        lambda args: f"Use the keyword '{args.keyword}' exactly once.",
    ),
    Constraint(
        "keywords:exclude_word_harder",
        ExcludedKeyword,
        lambda response, args: f" {args.keyword} " not in response,
        lambda args: f"Do not use the word '{args.keyword}'.",
    ),
    Constraint(
        "keywords:palindrome",
        NoArgs,
        lambda response, _: any(word == word[::-1] for word in response.split()),
        lambda _: "Include a palindrome.",
        has_content=_long_palindrome,
    ),
    Constraint(
        "keywords:keyword_specific_position",
        KeywordPosition,
        _positioned,
        lambda args: f"Make '{args.keyword}' word {args.m} of sentence {args.n}.",
    ),
    Constraint(
        "keywords:start_end",
        NoArgs,
        _start_is_end,
        lambda _: "Begin and end with the same word, with nothing after it, not even punctuation.",
    ),
    Constraint(
        "first_word:first_word_sent",
        FirstWord,
        _first_words,
        lambda args: f"Begin every sentence with the word '{args.first_word}'.",
    ),
    Constraint(
        "first_word:first_word_answer",
        FirstWord,
        _is_first_word,
        lambda args: f"Begin the answer with the word '{args.first_word}'.",
    ),
    Constraint(
        "last_word:last_word_sent",
        LastWord,
        _last_words,
        lambda args: (
            f"Let '{args.last_word}' be the last word of every sentence, before punctuation."
        ),
    ),
    Constraint(
        "last_word:last_word_answer",
        LastWord,
        _is_last_word,
        lambda args: f"Let '{args.last_word}' be the last word of the answer.",
    ),
    Constraint(
        "punctuation:punctuation_dot",
        NoArgs,
        lambda response, _: "." not in response,
        lambda _: "Do not use periods.",
    ),
    Constraint(
        "punctuation:punctuation_exclamation",
        NoArgs,
        lambda response, _: "!" not in response,
        lambda _: "Do not use exclamation marks.",
    ),
    Constraint(
        "count:lowercase_counting",
        AtMost,
        lambda response, args: len(re.findall(r"\b[a-z]+\b", response)) <= args.N,
        lambda args: f"Write at most {args.N} words in lower case.",
    ),
    Constraint(
        "count:count_unique",
        NoArgs,
        _unique,
        lambda _: "Use no word twice.",
    ),
    Constraint(
        "count:count_increment_word",
        TwoKeywords,
        lambda response, args: (
            matching.occurrences(args.keyword1, response) == 1
            and matching.occurrences(args.keyword2, response) == 2
        ),
        lambda args: f"Use '{args.keyword1}' once and '{args.keyword2}' twice.",
    ),
    Constraint(
        "letters:letter_counting",
        Letters,
        lambda response, args: compare(
            len(re.findall("[A-Za-z]", response)), args.relation, args.N
        ),
        lambda args: f"Write {args.relation} {args.N} letters.",
    ),
)
"""All of this family."""
