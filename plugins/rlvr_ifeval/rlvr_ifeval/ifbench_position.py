"""IFBench's constraints on words at set places: first, last, or counted."""

from __future__ import annotations

import string
from itertools import pairwise

from rlvr_ifeval.constraint import Args, Family, NoArgs, Positive, Word
from rlvr_ifeval.ifbench_text import AROUND
from rlvr_ifeval.text import sentences, tokens

CONSTRAINTS = Family()
"""All of this family."""


class KeywordAt(Args):
    """A keyword and its place."""

    keyword: Word
    """The keyword."""
    n: Positive
    """Number of the sentence, from 1."""
    m: Positive
    """Number of the word in the sentence, from 1."""


class Keyword(Args):
    """A keyword."""

    keyword: Word
    """The keyword."""


@CONSTRAINTS.add(
    "words:last_first", NoArgs, "Begin every sentence with the last word of the sentence before."
)
def _last_first(response: str, _: NoArgs) -> bool:
    """Marks before a sentence's last word and after its first one belong to the words."""
    parts = sentences(response)
    for before, after in pairwise(parts):
        last, first = before.rstrip(AROUND).split(), after.lstrip(AROUND).split()
        if not last or not first or last[-1].lower() != first[0].lower():
            return False
    return True


@CONSTRAINTS.add(
    "words:paragraph_last_first",
    NoArgs,
    "End each paragraph with the word it begins with; separate paragraphs by a line break.",
)
def _paragraph_ends(response: str, _: NoArgs) -> bool:
    """Marks behind the first word and before the last one belong to them."""
    for paragraph in response.split("\n"):
        words = paragraph.strip().lower().strip(AROUND).split()
        if words and words[0] != words[-1]:
            return False
    return True


@CONSTRAINTS.add(
    "words:keywords_specific_position",
    KeywordAt,
    lambda args: (
        f'Let word number {args.m} of sentence number {args.n} be "{args.keyword.strip()}".'
    ),
)
def _keyword_at(response: str, args: KeywordAt) -> bool:
    """Words are tokens with a letter or digit in them: ``don't`` is two."""
    parts = sentences(response)
    if len(parts) < args.n:
        return False
    words = [token for token in tokens(parts[args.n - 1]) if any(map(str.isalnum, token))]
    return len(words) >= args.m and words[args.m - 1].lower() == args.keyword.strip().lower()


@CONSTRAINTS.add(
    "words:words_position",
    Keyword,
    lambda args: (
        f'Let "{args.keyword.strip()}" be the second word of your response and also the '
        "second to last."
    ),
)
def _second_and_second_to_last(response: str, args: Keyword) -> bool:
    """Words are tokens, marks among them; one closing mark is left out."""
    pieces, keyword = tokens(response), args.keyword.strip().lower()
    last = -3 if pieces and pieces[-1] in string.punctuation else -2
    return len(pieces) >= -last and pieces[1].lower() == pieces[last].lower() == keyword
