"""Whether IFBench's own script takes a first word for a verb: NLTK's tagger, or its habits.

The script downloads the data of NLTK's tagger. Where they are installed
(``nltk.download("averaged_perceptron_tagger_eng")``) the tagger itself decides here too. Where they
are not, a rule does that follows the tagger's habits: it does not call modals verbs, and takes a
capitalised imperative for a name unless a determiner follows ("Write a poem", not "Plant trees").
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rlvr_ifeval.ifbench_start_verb import starts_with_verb
from rlvr_ifeval.ifbench_tables import word_set
from rlvr_ifeval.ifbench_verbs import BASES
from rlvr_ifeval.text import tokens

if TYPE_CHECKING:
    from nltk.tag.perceptron import PerceptronTagger

_SEEN = 4
"""Tokens on which the first one's tag can depend, and one more."""
_MODALS = word_set("ca can cannot could may might must shall should will wo would")
_DETERMINERS = word_set("a an the this these my your his her its our their")
_SOMETIMES = word_set(
    """
    consider expect give have keep let pretend prioritize publish read see take try
    """
)
"""Common verbs that the tagger knows before other words too, when they are capitalised."""


def tagger_name() -> str:
    """``nltk`` if the tagger's data are installed, else ``own``."""
    return "own" if _tagger() is None else "nltk"


def tagged_as_verb(text: str) -> bool:
    """Whether the script would take the first token of a text, which may be a mark, for a verb."""
    first = list(tokens(text)[:_SEEN])
    if not first:
        return False
    tagger = _tagger()
    if tagger is not None:
        return "VB" in tagger.tag(first)[0][1]
    word = first[0].casefold()
    if not word[0].isalpha() or word in _MODALS or not starts_with_verb(text):
        return False
    if first[0][0].isupper() and word in BASES:
        return word in _SOMETIMES or (len(first) > 1 and first[1].casefold() in _DETERMINERS)
    return True


@cache
def _tagger() -> PerceptronTagger | None:
    from nltk.tag.perceptron import PerceptronTagger

    try:
        return PerceptronTagger()
    except LookupError:
        return None
