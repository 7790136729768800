"""IFBench's constraints on proportions: stop words, kinds of sentence, overlap with a text."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlvr_ifeval.constraint import Args, Family, NoArgs, Text, Whole
from rlvr_ifeval.ifbench_tables import STOP_WORDS
from rlvr_ifeval.text import sentences, words

Percentage = Annotated[Whole, Field(le=100)]
"""A whole number of per cent."""

_TRIGRAM = 3
_TOLERANCE = 2


CONSTRAINTS = Family()
"""All of this family."""


class StopWords(Args):
    """A share of stop words."""

    percentage: Percentage
    """Most stop words, in per cent of all words."""


class Overlap(Args):
    """A share of trigrams in common with a text."""

    reference_text: Annotated[Text, Field(min_length=_TRIGRAM)]
    """The text to overlap with."""
    percentage: Percentage
    """Share of the response's trigrams, in per cent, that the text holds too."""


@CONSTRAINTS.add(
    "ratio:stop_words", StopWords, "Let stop words be {percentage}% of all words at most."
)
def _stop_words(response: str, args: StopWords) -> bool:
    """The share in floating point: 7 of 25 words are a little more than 28 per cent."""
    all_words = words(response)
    stop = sum(word.lower() in STOP_WORDS for word in all_words)
    return bool(all_words) and stop / len(all_words) * 100 <= args.percentage


@CONSTRAINTS.add(
    "ratio:overlap",
    Overlap,
    lambda args: (
        f"Of the three-character sequences in your response, let {args.percentage}% "
        f"({_TOLERANCE} points more or less) occur in this text too:\n{args.reference_text}"
    ),
)
def _overlap(response: str, args: Overlap) -> bool:
    """The share in floating point, of triples of characters."""
    inside, given = (
        {t[at : at + 3] for at in range(len(t) - 2)} for t in (response, args.reference_text)
    )
    if not inside:
        return False
    share = len(inside & given) / len(inside)
    return args.percentage - _TOLERANCE <= share * 100 <= args.percentage + _TOLERANCE


def _ends(response: str, mark: str) -> int:
    return sum(sentence.endswith(mark) for sentence in sentences(response))


@CONSTRAINTS.add(
    "ratio:sentence_type", NoArgs, "Write two declarative sentences for each interrogative one."
)
def _two_to_one(response: str, _: NoArgs) -> bool:
    """Full stops and question marks of ASCII end sentences; nothing may stand after them."""
    return _ends(response, ".") == 2 * _ends(response, "?")


@CONSTRAINTS.add(
    "ratio:sentence_balance",
    NoArgs,
    "Write equally many declarative, interrogative and exclamatory sentences.",
)
def _balanced(response: str, _: NoArgs) -> bool:
    """Require equally many sentences that end in each of ``.?!``."""
    return len({_ends(response, mark) for mark in ".?!"}) == 1


@CONSTRAINTS.add(
    "ratio:sentence_words",
    NoArgs,
    "Write three sentences that have the same number of characters and no word in common.",
)
def _three_sentences(response: str, _: NoArgs) -> bool:
    """Three sentences of one length; the words do not matter."""
    parts = sentences(response)
    return len(parts) == 3 and len({len(sentence.strip()) for sentence in parts}) == 1
