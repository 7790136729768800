"""IFEval's constraints whose official script does not take words from the data literally."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rlvr_ifeval.arguments import (
    ForbiddenWords,
    KeywordFrequency,
    Keywords,
    Postscript,
    Sections,
)
from rlvr_ifeval.matching import compare


def _pattern(text: str, before: str = "", after: str = "") -> re.Pattern[str]:
    """A regular expression, as the script compiles it; literal where it would end with an error."""
    try:
        return re.compile(before + text + after, re.IGNORECASE)
    except re.error:
        return re.compile(before + re.escape(text) + after, re.IGNORECASE)


def existence(response: str, args: Keywords) -> bool:
    """Each keyword is searched as a regular expression."""
    return all(_pattern(word).search(response) for word in args.keywords)


def frequency(response: str, args: KeywordFrequency) -> bool:
    """The keyword is a regular expression."""
    count = sum(1 for _ in _pattern(args.keyword).finditer(response))
    return compare(count, args.relation, args.frequency)


def forbidden(response: str, args: ForbiddenWords) -> bool:
    """Between word boundaries, so that ``C++`` is hardly found."""
    return not any(_pattern(word, r"\b", r"\b").search(response) for word in args.forbidden_words)


def sections(response: str, args: Sections) -> bool:
    """The mark is a regular expression."""
    try:
        pattern = re.compile(rf"{args.section_spliter}\s?\d+")
    except re.error:
        pattern = re.compile(rf"{re.escape(args.section_spliter)}\s?\d+")
    return sum(1 for _ in pattern.finditer(response)) >= args.num_sections


def postscript(response: str, args: Postscript) -> bool:
    """The mark is a regular expression, in small letters; two marks have one of their own."""
    own = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}.get(args.postscript_marker)
    text = response.lower()
    if own is not None:
        return re.search(own, text) is not None
    marker = args.postscript_marker.lower()
    try:
        return re.search(marker, text) is not None
    except re.error:
        return marker in text


OFFICIAL: dict[str, Callable[[str, Any], bool]] = {
    "keywords:existence": existence,
    "keywords:frequency": frequency,
    "keywords:forbidden_words": forbidden,
    "detectable_format:multiple_sections": sections,
    "detectable_content:postscript": postscript,
}
"""The checks of this family that differ from a strict reading of the instruction."""
