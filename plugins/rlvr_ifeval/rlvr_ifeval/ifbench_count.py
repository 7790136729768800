"""IFBench's constraints on counts: words, names, numbers, pronouns, keywords."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, model_validator

from rlvr_ifeval.constraint import Args, Constraint, NoArgs, Positive, Whole, Word
from rlvr_ifeval.ifbench_tables import CONJUNCTIONS, PERSON_NAMES, PRONOUNS
from rlvr_ifeval.ifbench_text import AROUND, plain
from rlvr_ifeval.text import tokens, words

_NAMES = tuple(PERSON_NAMES.split())
_NAME = re.compile(rf"\b(?:{'|'.join(_NAMES)})\b")
_DIGITS = re.compile(r"\d+")
_JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
_INTERROBANG = "\u203d"
_MARKS = (".", ",", "!", "?", ";", ":")
_TIMES = (1, 2, 3, 5, 7)
_TIMES_SAID = ("once", "twice", "three times", "five times", "seven times")


class WordRange(Args):
    """A number of words, from and to."""

    min_words: Whole
    """Fewest words."""
    max_words: Positive
    """Most words."""

    @model_validator(mode="after")
    def _ordered(self) -> WordRange:
        if self.min_words > self.max_words:
            raise ValueError(f"min_words {self.min_words} is above max_words {self.max_words}")
        return self


class UniqueWords(Args):
    """A number of different words."""

    N: Positive
    """Fewest different words."""


class Conjunctions(Args):
    """A number of different coordinating conjunctions."""

    small_n: Annotated[Positive, Field(le=len(CONJUNCTIONS))]
    """Fewest different conjunctions; there are seven."""


class Names(Args):
    """A number of different names of the list."""

    N: Annotated[Positive, Field(le=len(_NAMES))]
    """Fewest different names; the list has fifty."""


class Numbers(Args):
    """A number of numbers."""

    N: Whole
    """Exactly as many numbers."""


class EveryNth(Args):
    """A period."""

    N: Positive
    """Every how many words."""


class Pronouns(Args):
    """A number of pronouns."""

    N: Positive
    """Fewest pronouns, repeated ones counted again."""


class FiveKeywords(Args):
    """Five keywords, to be used 1, 2, 3, 5 and 7 times."""

    keyword1: Word
    """Used once."""
    keyword2: Word
    """Used twice."""
    keyword3: Word
    """Used three times."""
    keyword4: Word
    """Used five times."""
    keyword5: Word
    """Used seven times."""

    @model_validator(mode="after")
    def _not_blank(self) -> FiveKeywords:
        if not all(keyword.strip() for keyword in self.keywords):
            raise ValueError("a keyword is blank")
        return self

    @property
    def keywords(self) -> tuple[str, ...]:
        """The five, in order."""
        return (self.keyword1, self.keyword2, self.keyword3, self.keyword4, self.keyword5)


def _word_range(response: str, args: WordRange) -> bool:
    return args.min_words <= len(words(response)) <= args.max_words


def _unique_words(response: str, args: UniqueWords) -> bool:
    """A run of punctuation counts as one word more."""
    return len({word.strip(AROUND) for word in response.lower().split()}) >= args.N


def _conjunctions(response: str, args: Conjunctions) -> bool:
    """Each spelling counts: ``And``, ``and`` and ``and,`` are three."""
    used = {word for word in response.split() if word.strip(AROUND).lower() in CONJUNCTIONS}
    return len(used) >= args.small_n


def _names(response: str, args: Names) -> bool:
    return len(set(_NAME.findall(response))) >= args.N


def _numbers(response: str, args: Numbers) -> bool:
    return len(_DIGITS.findall(plain(response))) == args.N


def _punctuation(response: str, _: NoArgs) -> bool:
    for interrobang in ("?!", "!?", _INTERROBANG):
        if interrobang in response:
            rest = response.replace(interrobang, "", 1)
            return all(mark in rest for mark in _MARKS)
    return False


def _japanese(response: str, args: EveryNth) -> bool:
    """Every word whose turn it is has a kana or a kanji, unless it is a number or a mark."""
    due = (word.strip(AROUND) for word in response.split()[args.N - 1 :: args.N])
    return all(_JAPANESE.search(word) for word in due if word and not word.isdigit())


def _pronouns(response: str, args: Pronouns) -> bool:
    """A pronoun is a token of its own; a typographic apostrophe separates none."""
    pieces = tokens(response.replace("/", " ").lower())
    return sum(token in PRONOUNS for token in pieces) >= args.N


def _five_keywords(response: str, args: FiveKeywords) -> bool:
    lower = response.lower()
    return all(
        lower.count(keyword.strip().lower()) == times
        for keyword, times in zip(args.keywords, _TIMES, strict=True)
    )


def _said(args: FiveKeywords) -> str:
    return ", ".join(
        f'"{keyword.strip()}" {times}'
        for keyword, times in zip(args.keywords, _TIMES_SAID, strict=True)
    )


CONSTRAINTS = (
    Constraint(
        "count:word_count_range",
        WordRange,
        _word_range,
        lambda args: f"Answer in {args.min_words} to {args.max_words} words.",
    ),
    Constraint(
        "count:unique_word_count",
        UniqueWords,
        _unique_words,
        lambda args: f"Use {args.N} or more different words.",
    ),
    Constraint(
        "count:conjunctions",
        Conjunctions,
        _conjunctions,
        lambda args: (
            f"Use {args.small_n} or more different coordinating conjunctions "
            f"({', '.join(CONJUNCTIONS)})."
        ),
    ),
    Constraint(
        "count:person_names",
        Names,
        _names,
        lambda args: (
            f"Mention {args.N} or more different people, with names from this list: "
            f"{', '.join(_NAMES)}."
        ),
    ),
    Constraint(
        "count:numbers",
        Numbers,
        _numbers,
        lambda args: f"Write exactly {args.N} numbers, in digits.",
    ),
    Constraint(
        "count:punctuation",
        NoArgs,
        _punctuation,
        lambda _: (
            "Use every common punctuation mark: period, comma, exclamation mark, question mark, "
            "semicolon, colon, and beside them an interrobang (?!)."
        ),
    ),
    Constraint(
        "count:words_japanese",
        EveryNth,
        _japanese,
        lambda args: (
            "Write every word in Japanese."
            if args.N == 1
            else f"Counting words from the first, write each word whose number is a multiple of "
            f"{args.N} in Japanese."
        ),
    ),
    Constraint(
        "count:pronouns",
        Pronouns,
        _pronouns,
        lambda args: f"Use {args.N} or more pronouns.",
    ),
    Constraint(
        "count:keywords_multiple",
        FiveKeywords,
        _five_keywords,
        lambda args: f"Use these keywords exactly as often as said: {_said(args)}.",
    ),
)
"""All of this family."""
