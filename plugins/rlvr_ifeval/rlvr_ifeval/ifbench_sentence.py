"""IFBench's constraints on single sentences: growing ones, and where a keyword stands."""

from __future__ import annotations

import re
from itertools import pairwise

from rlvr_ifeval.constraint import Args, Family, NoArgs, Positive, Word
from rlvr_ifeval.ifbench_text import AROUND, plain_words
from rlvr_ifeval.text import sentences

CONSTRAINTS = Family()
"""All of this family."""


class KeywordInSentence(Args):
    """A keyword and a sentence."""

    word: Word
    """The keyword."""
    N: Positive
    """Number of the sentence, from 1."""


class Increment(Args):
    """How fast sentences grow."""

    small_n: Positive
    """How many words each sentence has more than the one before."""


@CONSTRAINTS.add(
    "sentence:alliteration_increment",
    NoArgs,
    "In every sentence, let the longest run of neighbouring words with the same first "
    "letter be longer than in the sentence before.",
)
def _alliteration(response: str, _: NoArgs) -> bool:
    """All runs of a sentence are added up."""
    counts = []
    for sentence in sentences(response):
        words = [bare for word in sentence.lower().split() if (bare := word.lstrip(AROUND))]
        same = [before[0] == after[0] for before, after in pairwise(words)]
        starts = sum(now and not before for before, now in pairwise([False, *same]))
        counts.append(sum(same) + starts)
    return all(before < after for before, after in pairwise(counts))


@CONSTRAINTS.add(
    "sentence:keyword", KeywordInSentence, 'Use the keyword "{word}" in sentence number {N}.'
)
def _keyword(response: str, args: KeywordInSentence) -> bool:
    """Between word boundaries, so that a keyword that ends in a mark is hardly found."""
    parts = sentences(response)
    pattern = rf"\b{re.escape(args.word)}\b"
    return len(parts) >= args.N and re.search(pattern, parts[args.N - 1], re.IGNORECASE) is not None


@CONSTRAINTS.add(
    "sentence:increment",
    Increment,
    lambda args: (
        f"Let every sentence have exactly {args.small_n} "
        f"{'word' if args.small_n == 1 else 'words'} more than the sentence before."
    ),
)
def _increment(response: str, args: Increment) -> bool:
    """A dash without spaces joins two words."""
    lengths = [len(plain_words(sentence)) for sentence in sentences(response)]
    return all(after - before == args.small_n for before, after in pairwise(lengths))
