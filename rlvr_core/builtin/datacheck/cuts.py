"""Excerpts of a text by position, without reading the question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

PLACES = {"first": 0, "second": 1, "third": 2, "next to last": -2, "last": -1}

CONSTANTS = (
    "",
    " ",
    *(str(n) for n in range(-1, 11)),
    "100",
    "yes",
    "no",
    "Yes",
    "No",
    "true",
    "false",
    "True",
    "False",
    "none",
    "None",
    "null",
    "A",
    "B",
    "C",
    "D",
    "[]",
    "{}",
    "()",
    "-",
    "?",
    "I do not know",
    "the answer",
)
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


_OPTION = re.compile(r"^[ \t]*\(?([A-Z])[).:][ \t]+(?=\S)", re.MULTILINE)


def cuts(text: str) -> Iterator[tuple[str, str]]:
    """Yield excerpts of a text by position, and counts, with their names."""
    yield "the whole text", text
    yield "number of characters", str(len(text))
    for kind, pattern in _KINDS.items():
        found = [" ".join(piece.split()) for piece in pattern.findall(text)]
        yield f"number of {kind}s", str(len(found))
        yield f"number of different {kind}s", str(len(set(found)))
        for place, index in PLACES.items():
            if -len(found) <= index < len(found):
                yield f"{place} {kind}", found[index]
        if not found:
            continue
        yield f"most frequent {kind}", Counter(found).most_common(1)[0][0]
        yield f"longest {kind}", max(found, key=len)
        yield f"shortest {kind}", min(found, key=len)
        if kind == "number":
            yield from _extremes(found)
    for way, (letter, option) in _choices(_options(text)):
        yield f"{way} option", letter
        yield f"text of the {way} option", option


def _options(text: str) -> list[tuple[str, str]]:
    """Return letters and texts of a text's last list of options: ``(A) one``, ``(B) two``."""
    runs: list[list[re.Match[str]]] = []
    for found in _OPTION.finditer(text):
        if found[1] == "A":
            runs.append([found])
        elif runs and ord(found[1]) == ord(runs[-1][-1][1]) + 1:
            runs[-1].append(found)
    marks = next((run for run in reversed(runs) if len(run) > 1), [])
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    pieces = [text[mark.end() : end] for mark, end in zip(marks, ends, strict=False)]
    if pieces:
        pieces[-1] = pieces[-1].split("\n\n")[0]
    return [(mark[1], piece.strip()) for mark, piece in zip(marks, pieces, strict=True)]


def _choices(options: Sequence[tuple[str, str]]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield options that stand out by their form, each with the criterion."""
    if not options:
        return
    yield "longest", max(options, key=lambda option: len(option[1]))
    yield "shortest", min(options, key=lambda option: len(option[1]))
    words = Counter(word for _, text in options for word in set(text.lower().split()))

    def shared(option: tuple[str, str]) -> float:
        own = set(option[1].lower().split())
        return sum(words[word] - 1 for word in own) / (len(own) or 1)

    yield "most usual", max(options, key=shared)
    yield "most unusual", min(options, key=shared)


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
