"""The statement of an answer: "the answer is ...", "option B is correct"."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rlvr_checks.choice.options import Options
from rlvr_checks.choice.places import Match

_FILL = (
    r"(?:\s*(?:therefore|thus|then|hence|clearly|definitely|certainly|indeed|simply|obviously|"
    r"(?:most )?(?:likely|probably)|option|choice|letter|number|given by|:|=|\.{3,}(?=[ \t]*\S)|"
    r"-(?=\s*\(?[A-Za-z]))\s*)*"
)
_BE = r"(?:\b(?:is|should be|must be|would be|has to be)\b|:)"
_STATEMENT = re.compile(
    r"(?:\banswer(?:\s*\([^()]{0,40}\)|\s+(?:to|of|for|here|in)\b[^.,;:!?\n]{0,60}?)?\s*(?:=|"
    + _BE
    + r")|\b(?:correct|right|best|final)\s+(?:option|choice|letter|one)"
    r"(?:\s+(?:of|among|here|in)\b[^.,;:!?\n]{0,60}?)?\s*"
    + _BE
    + r"|\b(?:i|we)(?:'ll|'d|\s+will|\s+would|\s+therefore|\s+can)?\s+"
    r"(?:choose|pick|select|go with|say|answer(?: with)?)"
    r"|\bit(?:'s|\s+is|\s+must be|\s+has to be)"
    r"|答案(?:是|为|选|应为)?\s*:?)" + _FILL,
    re.IGNORECASE,
)
_IS_RIGHT = re.compile(
    r"(?:\b(?:option|choice|answer)\s+)?\(?(?<![A-Za-z0-9'-])([A-Z])\)?"
    r"(?:\s+is|\s+must be|\s+should be)(?:\s+(?:therefore|thus|clearly|indeed))?"
    r"\s+(?:the\s+)?(?:correct|right|best|answer)\b",
)
_LISTED = re.compile(r"\b[A-J]\)?\s*(?:,|/|&)?\s*(?:and|or|nor)?\s*$")
_NOT = re.compile(
    r"\b(?:not|no|never|cannot|neither|nor|nobody|doubt|wrong|incorrect|false|unlikely|impossible|"
    r"eliminate|exclude|except|if|whether|unless|suppose|assume|might|could|may|isn't|than|was|"
    r"were|opposite|least|worst|mistake|nothing|far from)\b|n't\b|^\s*is\b",
    re.IGNORECASE,
)
_STRONG = re.compile(r"answer|option|choice|letter|one|答案", re.IGNORECASE)
_MOST = 500
"""Statements that are looked at, and as many by "it is" or "I choose": a bound on the time."""
_CLAUSE = re.compile(
    r"[.!?;:,\n]|\b(?:so|but|and|therefore|thus|hence|then|because)\b", re.IGNORECASE
)
_UNSAID = re.compile(
    r"[\s.`'\"*_$:()\[\]]*(?:(?:the\s+)?(?:(?:final|correct)\s+)?answer(?:\s+is)?)?[\s.:*]*\Z|"
    r"\s*\.{3,}[`'\"*_). ]*(?:\n|\Z)|[\s`'\"*_$]*\(X\)",
    re.IGNORECASE,
)
"""A statement that was cut off, or stands in words of the task: ``The answer is (X)``."""
_OF_PART = re.compile(r"\b(?:part|step|statement)\s*\(?(?:[a-z]|\d+|[ivx]+)\b", re.IGNORECASE)
"""``the answer for part (a) is``: of a part of the question."""
_LONGEST = 1000
"""Characters behind a statement that are looked at."""


def statement(text: str, options: Options, which: Match) -> str | None:
    """Return the text behind the statement that counts, or its letter; None without one.

    A statement that is denied, doubted, asked or cut off is passed over; one is given, as
    nothing, if there is no other.
    """
    best: tuple[int, str] | None = None
    best_strong = passed_over = False
    weak = left = _MOST
    for match in _ordered(_STATEMENT, text, which):
        behind = text[match.end() : match.end() + _LONGEST]
        strong = _STRONG.search(match[0]) is not None
        left -= strong
        if left < 0:
            break
        if not strong:
            weak -= 1
            # "it is" and "I choose" go on in many other ways
            if best or weak < 0 or options.beginning(behind) is None:
                continue
        if (
            _UNSAID.match(behind)
            or _denied(text, match.start())
            or _OF_PART.search(match[0])
            or (which == "first" and not options.names(behind))
        ):
            passed_over = True
            continue
        best, best_strong = (match.start(), behind), strong
        if strong or which == "last":
            break
    for match in _ordered(_IS_RIGHT, text, which):
        # of several, "the answer is" comes first: "(A) is correct" may be said of parts
        if best and (best_strong if which == "first" else match.start() < best[0]):
            break
        listed = _LISTED.search(text[max(0, match.start() - 20) : match.start()])
        if not listed and not _denied(text, match.start()):
            if best is None or which == "last" or match.start() < best[0]:
                best = match.start(), f"({match[1]})"
            break
    if best:
        return best[1]
    return "" if passed_over else None


def _ordered(pattern: re.Pattern[str], text: str, which: Match) -> Iterable[re.Match[str]]:
    matches = pattern.finditer(text)
    return matches if which == "first" else reversed(list(matches))


def _denied(text: str, start: int) -> bool:
    """Return whether the clause before a statement denies, doubts or asks it."""
    before = text[max(0, start - 200) : start]
    clause = _CLAUSE.split(before)[-1]
    return _NOT.search(clause) is not None
