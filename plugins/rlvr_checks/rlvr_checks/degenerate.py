"""The verifier ``checks/degenerate``: texts that repeat themselves, and gibberish."""

from __future__ import annotations

import re
import unicodedata
import zlib
from typing import Annotated

from pydantic import Field

from rlvr_core.api import Completion, ComponentConfig, Problem, Verdict, VerifierTraits

_LONG_WORD = re.compile(r"[^\W\d_]{41,}")
_JUNK = ("Cc", "Co", "Cn", "Cs")
_SCRIPTS = ("LATIN", "CYRILLIC", "GREEK", "ARABIC", "HEBREW", "DEVANAGARI", "THAI", "HANGUL", "CJK")
_UNSPACED = ("THAI", "CJK")
"""Scripts written without spaces, in which long words are normal."""


class Degenerate:
    """1 for ordinary text, 0 for text that repeats itself or is gibberish; no outcome of its own.

    With weight 0 in ``rewards`` it only watches; with a small weight it pays for ordinary text.
    """

    traits = VerifierTraits(decides=False)

    class Config(ComponentConfig):
        """Options of ``checks/degenerate``."""

        max_repetition: Annotated[float, Field(gt=0, le=1)] = 0.85
        """Largest share by which the second half of a text may shrink when it is compressed. Prose
        and worked mathematics shrink by 0.3 to 0.75."""
        min_characters: Annotated[int, Field(ge=50)] = 200
        """Shorter texts are not looked at for repetition."""
        max_gibberish: Annotated[float, Field(gt=0, le=1)] = 0.1
        """Largest share of characters that are no text (control, private or unassigned ones, the
        replacement character) or in words of several scripts or of more than 40 letters."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Return the score of the text, with both shares in ``parts``."""
        text = completion.text
        parts = {
            "repetition": repetition(text, self._config.min_characters),
            "gibberish": gibberish(text),
        }
        faults = [
            name
            for name, limit in (
                ("repetition", self._config.max_repetition),
                ("gibberish", self._config.max_gibberish),
            )
            if parts[name] > limit
        ]
        detail = ", ".join(f"{name} {parts[name]:.2f}" for name in faults)
        return Verdict(0.0 if faults else 1.0, parts=parts, detail=detail)


def repetition(text: str, min_characters: int = 200) -> float:
    """Return by what share the second half of a text shrinks when compressed; 0 if it is short.

    A repetition loop lasts until the end of a text, so it fills the second half.
    """
    if len(text) < min_characters:
        return 0.0
    tail = text[len(text) // 2 :].encode("utf-8", "replace")
    return max(0.0, 1.0 - len(zlib.compress(tail, 9)) / len(tail))


def gibberish(text: str) -> float:
    """Return the share of characters that are not text, or are in words that are not words."""
    if not text:
        return 0.0
    junk = sum(
        character == "\N{REPLACEMENT CHARACTER}"
        or (character not in "\t\n\r" and unicodedata.category(character) in _JUNK)
        for character in text
    )
    for word in re.findall(r"[^\W\d_]+", text):
        scripts = set() if word.isascii() else {_script(character) for character in word} - {""}
        mixed = len(scripts) > 1 and not scripts <= {"CJK", "HANGUL"}
        if mixed or (_LONG_WORD.fullmatch(word) and not scripts & set(_UNSPACED)):
            junk += len(word)
    return min(1.0, junk / len(text))


def _script(character: str) -> str:
    name = unicodedata.name(character, "")
    if name.startswith(("HIRAGANA", "KATAKANA")):
        return "CJK"
    return next((script for script in _SCRIPTS if name.startswith(script)), "")
