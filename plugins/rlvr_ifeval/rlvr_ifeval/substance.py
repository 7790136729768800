"""Decides whether a pass is more than trivial; used only with ``min_content``."""

from __future__ import annotations

from rlvr_ifeval.text import words

MIN_WORDS = 5
"""Different words that make an answer, however short."""
MIN_LETTERS = 15
"""Different letters that do in scripts without spaces between words."""


def substantial(text: str) -> bool:
    """Whether a text has at least five different words, or letters of a script without spaces."""
    if len({word.casefold() for word in words(text)}) >= MIN_WORDS:
        return True
    return len({letter for letter in text if letter.isalpha() and ord(letter) > 0xE00}) >= (
        MIN_LETTERS
    )


def always(response: str, _: object) -> bool:
    """The rule of constraints that have no other: the response has substance."""
    return substantial(response)
