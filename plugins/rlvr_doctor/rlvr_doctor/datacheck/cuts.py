"""Excerpts of a text by position, without reading the question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

PLACES = {"first": 0, "second": 1, "third": 2, "next to last": -2, "last": -1}

_WORDS = "100 yes no Yes No true false True False none None null A B C D [] {} () - ?"
CONSTANTS = ("", " ", "I do not know", "the answer", *map(str, range(-1, 11)), *_WORDS.split())
"""Constant answers to any question."""

_QUOTES = "\"'`\u2018\u2019\u201c\u201d"
_KINDS = {
    "number": re.compile(r"-?\d[\d,]*(?:\.\d+)?"),
    "word": re.compile(r"[^\W\d_]{2,}"),
    "capitalised word": re.compile(r"\b[A-Z][a-z]+"),
    "capital letter": re.compile(r"\b[A-Z]\b"),
    "quoted text": re.compile(f"[{_QUOTES}]([^{_QUOTES}\n]{{1,200}})[{_QUOTES}]"),
    "bracketed text": re.compile(r"(\[[^\[\]]*\])"),
    "text in parentheses": re.compile(r"\(([^()]*)\)"),
    "line": re.compile(r"[^\n]*\S[^\n]*"),
    "sentence": re.compile(r"[^.?!\n]*[^.?!\s][^.?!\n]*"),
    "text behind a colon": re.compile(r":[ \t]*([^\n]+)"),
    "address": re.compile(r"https?://[^\s\"'<>]+"),
    "alternative before an or": re.compile(r"(\w+),? or \w+"),
    "alternative behind an or": re.compile(r"\w+,? or (\w+)"),
}


def cuts(text: str) -> Iterator[tuple[str, str]]:
    """Yield excerpts of a text by position, and counts, with their names."""
    yield "the whole text", text
    yield "number of characters", str(len(text))
    for kind, pattern in _KINDS.items():
        excerpts = [" ".join(piece.split()) for piece in pattern.findall(text)]
        yield f"number of {kind}s", str(len(excerpts))
        yield f"number of different {kind}s", str(len(set(excerpts)))
        for place, index in PLACES.items():
            if -len(excerpts) <= index < len(excerpts):
                yield f"{place} {kind}", excerpts[index]
        if not excerpts:
            continue
        yield f"most frequent {kind}", Counter(excerpts).most_common(1)[0][0]
        yield f"longest {kind}", max(excerpts, key=len)
        yield f"shortest {kind}", min(excerpts, key=len)
        if kind == "number":
            yield from _extremes(excerpts)


def _extremes(numbers: Sequence[str]) -> Iterator[tuple[str, str]]:
    def value(text: str) -> float:
        return float(text.replace(",", ""))

    ordered = sorted(numbers, key=value)
    ways: dict[str, Callable[[], str]] = {
        "smallest number": lambda: ordered[0],
        "second smallest number": lambda: ordered[min(1, len(ordered) - 1)],
        "median number": lambda: ordered[len(ordered) // 2],
        "second largest number": lambda: ordered[max(-2, -len(ordered))],
        "largest number": lambda: ordered[-1],
    }
    for name, way in ways.items():
        yield name, way()
