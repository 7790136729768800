"""IFBench's constraints on counts: words, names, numbers, pronouns, keywords."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, model_validator

from rlvr_ifeval.constraint import Args, Family, NoArgs, Positive, Whole, Word
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


CONSTRAINTS = Family()
"""All of this family."""


class WordRange(Args):
    """A number of words, from and to."""

    min_words: Whole
    """Fewest words."""
    max_words: Positive
    """Maximum number of words."""

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


@CONSTRAINTS.add("count:word_count_range", WordRange, "Answer in {min_words} to {max_words} words.")
def _word_range(response: str, args: WordRange) -> bool:
    return args.min_words <= len(words(response)) <= args.max_words


@CONSTRAINTS.add("count:unique_word_count", UniqueWords, "Use {N} or more different words.")
def _unique_words(response: str, args: UniqueWords) -> bool:
    """A run of punctuation counts as one word more."""
    return len({word.strip(AROUND) for word in response.lower().split()}) >= args.N


@CONSTRAINTS.add(
    "count:conjunctions",
    Conjunctions,
    lambda args: (
        f"Use {args.small_n} or more different coordinating conjunctions "
        f"({', '.join(CONJUNCTIONS)})."
    ),
)
def _conjunctions(response: str, args: Conjunctions) -> bool:
    """Each spelling counts: ``And``, ``and`` and ``and,`` are three."""
    used = {word for word in response.split() if word.strip(AROUND).lower() in CONJUNCTIONS}
    return len(used) >= args.small_n


@CONSTRAINTS.add(
    "count:person_names",
    Names,
    lambda args: (
        f"Mention {args.N} or more different people, with names from this list: "
        f"{', '.join(_NAMES)}."
    ),
)
def _names(response: str, args: Names) -> bool:
    return len(set(_NAME.findall(response))) >= args.N


@CONSTRAINTS.add("count:numbers", Numbers, "Write exactly {N} numbers, in digits.")
def _numbers(response: str, args: Numbers) -> bool:
    return len(_DIGITS.findall(plain(response))) == args.N


@CONSTRAINTS.add(
    "count:punctuation",
    NoArgs,
    "Use every common punctuation mark: period, comma, exclamation mark, question mark, "
    "semicolon, colon, and beside them an interrobang (?!).",
)
def _punctuation(response: str, _: NoArgs) -> bool:
    for interrobang in ("?!", "!?", _INTERROBANG):
        if interrobang in response:
            rest = response.replace(interrobang, "", 1)
            return all(mark in rest for mark in _MARKS)
    return False


@CONSTRAINTS.add(
    "count:words_japanese",
    EveryNth,
    lambda args: (
        "Write every word in Japanese."
        if args.N == 1
        else f"Counting words from the first, write each word whose number is a multiple of "
        f"{args.N} in Japanese."
    ),
)
def _japanese(response: str, args: EveryNth) -> bool:
    """Every word whose turn it is has a kana or a kanji, unless it is a number or a mark."""
    due = (word.strip(AROUND) for word in response.split()[args.N - 1 :: args.N])
    return all(_JAPANESE.search(word) for word in due if word and not word.isdigit())


@CONSTRAINTS.add("count:pronouns", Pronouns, "Use {N} or more pronouns.")
def _pronouns(response: str, args: Pronouns) -> bool:
    """A pronoun is a token of its own; a typographic apostrophe separates none."""
    pieces = tokens(response.replace("/", " ").lower())
    return sum(token in PRONOUNS for token in pieces) >= args.N


@CONSTRAINTS.add(
    "count:keywords_multiple",
    FiveKeywords,
    lambda args: f"Use these keywords exactly as often as said: {_said(args)}.",
)
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
