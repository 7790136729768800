"""Parses HTML for selectors: elements in document order, with text and source."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "source",
        "track",
        "wbr",
    ]
)
_HTML = re.compile(r"(?is)(?:<!doctype html[^>]*>\s*)?<html\b.*?</html>|<body\b.*?</body>")
_SPACE = re.compile(r"\s+")
PLACES = {"first": 0, "second": 1, "third": 2, "next to last": -2, "last": -1}
MOST_SOURCE = 200
"""Maximum characters of an element's source to use as an answer."""


@dataclass(slots=True)
class Element:
    """One element of a page."""

    tag: str
    attributes: Mapping[str, str]
    start: int
    end: int = -1
    words: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text of it and its descendants, with single spaces."""
        return _SPACE.sub(" ", "".join(self.words)).strip()


class _Reader(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.elements: list[Element] = []
        self.comments: list[str] = []
        self.open: list[Element] = []
        self._lines = [0, *(found.end() for found in re.finditer("\n", html))]
        self.feed(html)
        self.close()
        for left in self.open:
            left.end = len(html)

    @property
    def _at(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        one = Element(tag, {key: value or "" for key, value in attrs}, self._at)
        self.elements.append(one)
        if tag in _VOID:
            one.end = one.start + len(self.get_starttag_text() or "")
        else:
            self.open.append(one)

    def handle_endtag(self, tag: str) -> None:
        if not any(one.tag == tag for one in self.open):
            return
        while True:
            one = self.open.pop()
            one.end = self._at + len(tag) + 3 if one.tag == tag else self._at
            if one.tag == tag:
                return

    def handle_data(self, data: str) -> None:
        for one in self.open:
            one.words.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data.strip())


def pages(prompt: str) -> list[str]:
    """Return the HTML documents in a prompt."""
    return _HTML.findall(prompt)


def visible_text(html: str) -> str:
    """Return the text of a page, one element per line."""
    return "\n".join(
        text
        for one in _Reader(html).elements
        if one.tag in _BLOCKS and (text := one.text) and "<" not in text
    )


_BLOCKS = frozenset(
    [
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "p",
        "li",
        "td",
        "th",
        "dt",
        "dd",
        "a",
        "button",
        "label",
        "option",
        "figcaption",
    ]
)


def selected(html: str) -> Iterator[tuple[str, str]]:
    """Yield the results of selectors that ignore the question, with their names."""
    reader = _Reader(html)
    yield from _placed("comment", reader.comments)
    yield from _placed("element's source", _sources(reader, reader.elements))
    by_tag: dict[str, list[Element]] = defaultdict(list)
    by_attribute: dict[str, list[Element]] = defaultdict(list)
    for one in reader.elements:
        by_tag[one.tag].append(one)
        for key in one.attributes:
            by_attribute[key].append(one)
    for tag, found in by_tag.items():
        yield f"number of <{tag}>", str(len(found))
        texts = [one.text for one in found]
        yield from _placed(f"<{tag}>", texts)
        yield from _frequent(f"<{tag}>", texts)
        yield from _placed(f"source of <{tag}>", _sources(reader, found))
    for key, found in by_attribute.items():
        values = [one.attributes[key] for one in found]
        yield f"number of elements with {key}", str(len(found))
        yield from _placed(f"{key}=", values)
        yield from _frequent(f"{key}=", values)
        yield from _placed(f"element with {key}", [one.text for one in found])
    classes = Counter(one.attributes.get("class", "") for one in reader.elements)
    rare = [e for e in reader.elements if classes[e.attributes.get("class", "")] == 1]
    yield from _placed("element of a class of its own", [one.text for one in rare if one.text])


def lists(html: str) -> Iterator[tuple[str, list[str]]]:
    """Yield lists that selectors which ignore the question find, with their names."""
    reader = _Reader(html)
    for tag in dict.fromkeys(one.tag for one in reader.elements):
        texts = [one.text for one in reader.elements if one.tag == tag]
        yield f"every <{tag}>", texts
        yield f"every different <{tag}>", list(dict.fromkeys(texts))
    for key in dict.fromkeys(key for one in reader.elements for key in one.attributes):
        having = [one for one in reader.elements if key in one.attributes]
        yield f"every {key}=", [one.attributes[key] for one in having]
        yield f"every element with {key}", [one.text for one in having]


def _placed(name: str, values: Sequence[str]) -> Iterator[tuple[str, str]]:
    for place, index in PLACES.items():
        if -len(values) <= index < len(values):
            yield f"{place} {name}", values[index]
    if values:
        yield f"longest {name}", max(values, key=len)


def _frequent(name: str, values: Sequence[str]) -> Iterator[tuple[str, str]]:
    counts = Counter(values).most_common()
    if counts and counts[0][1] > 1:
        yield f"most frequent {name}", counts[0][0]
    if counts and counts[-1][1] == 1 < len(counts):
        yield f"least frequent {name}", counts[-1][0]


def _sources(reader: _Reader, found: Sequence[Element]) -> list[str]:
    return [reader.html[one.start : one.end][:MOST_SOURCE] for one in found]
