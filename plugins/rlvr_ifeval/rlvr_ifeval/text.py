"""How constraints see a text: words, tokens, sentences.

Three views, because the benchmarks use three: words (runs of letters and digits), tokens in the
manner of the Penn Treebank, and sentences by NLTK's Punkt algorithm. NLTK's code is used and none
of its downloads.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

import regex

from rlvr_ifeval.abbreviations import (
    ABBREVIATIONS,
    AFTER_NUMBERS,
    ORDINARY,
    SOMETIMES_NAMES,
    STARTERS,
)

if TYPE_CHECKING:
    from nltk.tokenize.destructive import NLTKWordTokenizer
    from nltk.tokenize.punkt import PunktSentenceTokenizer

_KEPT = 16
"""Texts whose sentences are remembered: several constraints of one response ask for them."""
# NLTK's engine: to the standard library's, a vowel sign of Hindi or Thai ends a word.
_WORD = regex.compile(r"\w+")
# Punkt's flags for a word seen in lower case, and capitalised, inside a sentence.
_LOWER_INSIDE, _UPPER_INSIDE = 1 << 5, 1 << 2

_JOINERS = r"[\u200c\u200d\ufe00-\ufe0f\U000e0020-\U000e007f]"
_HIDDEN = regex.compile(
    rf"(?V1)[\p{{Default_Ignorable_Code_Point}}--{_JOINERS}]|[\p{{Cc}}--\s--[\x1c-\x1f]]"
)
"""Characters without a shape of their own, wherever they are; spaces and ends of lines are none."""
_NEEDLESS = regex.compile(
    r"(?:(?<=[\p{Latin}\p{Greek}\p{Cyrillic}\p{Nd}\p{P}\s$+<=>^`|~\u0300-\u036f])|\A)"
    rf"{_JOINERS}+(?!\u20e3)"
)
"""Joiners and selectors; they stay where scripts or emoji need them: behind an Arabic or Indian
letter, an emoji, in a keycap."""


def visible(text: str) -> str:
    """The text without invisible characters, such as a zero-width space within a word."""
    text = _HIDDEN.sub("", text)
    return text if text.isascii() else _NEEDLESS.sub("", text)


def words(text: str) -> list[str]:
    """Runs of letters with their accents and vowel signs, digits and underscores."""
    return [match[0] for match in _WORD.finditer(text)]


@lru_cache(maxsize=_KEPT)
def sentences(text: str) -> tuple[str, ...]:
    """Sentences by the Punkt algorithm, stripped of the space between them."""
    return tuple(_punkt().tokenize(text))


@lru_cache(maxsize=_KEPT)
def tokens(text: str) -> tuple[str, ...]:
    """Words and punctuation as the Penn Treebank separates them, sentence by sentence."""
    tokenizer = _treebank()
    return tuple(token for sentence in sentences(text) for token in tokenizer.tokenize(sentence))


@cache
def _punkt() -> PunktSentenceTokenizer:
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    parameters = PunktParameters()
    parameters.abbrev_types = set(ABBREVIATIONS)
    parameters.sent_starters = set(STARTERS)
    parameters.collocations = {("##number##", word) for word in AFTER_NUMBERS}
    parameters.ortho_context.update(dict.fromkeys(ORDINARY, _LOWER_INSIDE))
    parameters.ortho_context.update(dict.fromkeys(SOMETIMES_NAMES, _LOWER_INSIDE | _UPPER_INSIDE))
    tokenizer = PunktSentenceTokenizer()
    tokenizer._params = parameters
    return tokenizer


@cache
def _treebank() -> NLTKWordTokenizer:
    from nltk.tokenize.destructive import NLTKWordTokenizer

    return NLTKWordTokenizer()
