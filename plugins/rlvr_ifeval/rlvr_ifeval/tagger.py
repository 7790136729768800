"""NLTK's tagger, by which IFBench's script tells whether a response begins with a verb."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rlvr_core.api import MachineError
from rlvr_ifeval.text import tokens

if TYPE_CHECKING:
    from nltk.tag.perceptron import PerceptronTagger

TAGGED = "words:start_verb"
"""The constraint that needs the tagger."""
_SEEN = 4
"""Tokens on which the first one's tag can depend, and one more."""


def starts_with_verb(text: str) -> bool:
    """Whether the tagger takes the first token of a text, which may be a mark, for a verb.

    Raises:
        MachineError: If the tagger's data are not installed.
    """
    first = list(tokens(text)[:_SEEN])
    return bool(first) and "VB" in tagger().tag(first)[0][1]


@cache
def tagger() -> PerceptronTagger:
    """The tagger, whose data NLTK does not bring along.

    Raises:
        MachineError: If they are not installed.
    """
    from nltk.tag.perceptron import PerceptronTagger

    try:
        return PerceptronTagger()
    except LookupError as error:
        raise MachineError(
            f"IFBench judges {TAGGED} by NLTK's tagger, whose data are not installed",
            remedy="python -m nltk.downloader averaged_perceptron_tagger_eng",
        ) from error
