r"""Answers in ``\boxed{...}``. Everything here is linear in the text's length."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

_BOX_TOKEN = re.compile(
    r"\\(?:boxed|fbox)(?:[ \t]{0,8}\{|(?:[ \t]{1,8}|(?=\d))(?P<bare>[^\s{}$\\]{1,50}))"
    r"|\\[\\{}]|[{}]"
)
_COMMANDS = ("\\boxed", "\\fbox")
_BLANK = re.compile(r"(?:\s|\\[,;:! ]|~|\\q?quad(?![A-Za-z])|\\[hv]?phantom\s?\{[^{}]*\}|\$)*")


@dataclass(frozen=True, slots=True)
class Found:
    """The text of an answer, the rule that found it, and whether it is the whole of its place.

    What was found in running text may be the last step of a calculation there.
    """

    text: str
    rule: str
    prose: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    r"""A balanced ``\boxed{...}``: ``text[start:end]`` is all of it."""

    text: str
    start: int
    inside: int
    end: int
    bare: bool

    @property
    def content(self) -> str:
        """The content of the box."""
        if self.bare:
            return self.text[self.inside : self.end].rstrip(".,;:!")
        return self.text[self.inside : self.end - 1].strip()


def boxes(text: str, empty: bool = False) -> Iterator[Box]:
    r"""Balanced ``\boxed{...}`` and ``\fbox{...}``, the last to open first.

    Braces are matched in one pass without recursion; ``\{`` and ``\}`` do not count as braces.
    TeX also takes ``\boxed 5``. Boxes with nothing but space in them come only with ``empty``.
    """
    if not _has_command(text):
        return
    closed: list[Box] = []
    open_braces: list[tuple[int, int] | None] = []  # starts of command and content; None for {
    for token in _BOX_TOKEN.finditer(text):
        piece = token.group()
        if piece == "}":
            if open_braces and (opened := open_braces.pop()):
                closed.append(Box(text, *opened, token.end(), False))
        elif piece == "{":
            open_braces.append(None)
        elif token["bare"]:
            closed.append(Box(text, token.start(), token.start("bare"), token.end(), True))
        elif piece.startswith(_COMMANDS):
            open_braces.append((token.start(), token.end()))
    for box in sorted(closed, key=lambda box: box.start, reverse=True):
        blank = _BLANK.match(text, box.inside, box.end - (not box.bare))
        if empty or (blank and blank.end() < box.end - (not box.bare)):
            yield box


def _has_command(text: str) -> bool:
    return "\\boxed" in text or "\\fbox" in text


def last_box(text: str) -> Found | None:
    r"""Content of the last non-empty ``\boxed{...}`` to open, so the inner one of nested boxes."""
    box = next(boxes(text), None)
    return Found(box.content, "boxed") if box else None


def first_box(text: str) -> Found | None:
    r"""Content of the first non-empty ``\boxed{...}`` to open."""
    box = next(iter(deque(boxes(text), maxlen=1)), None)
    return Found(box.content, "boxed") if box else None


def all_boxes(text: str) -> Found | None:
    r"""Contents of the boxes in the last paragraph that has one, as one list."""
    latest_first = list(boxes(text))
    if not latest_first:
        return None
    paragraph = text.rfind("\n\n", 0, latest_first[0].start)
    contents: dict[str, None] = {}
    outer = len(text)
    for box in latest_first:
        if box.start > paragraph and box.end <= outer:
            contents[box.content] = None
            outer = box.start
    return Found(", ".join(reversed(contents)), "boxed")


def has_empty_box(text: str) -> bool:
    r"""Whether there are boxes and all of them are empty: an answer that was withheld."""
    if not _has_command(text):
        return False
    return next(boxes(text, empty=True), None) is not None and next(boxes(text), None) is None


def without_open_box(text: str) -> str:
    r"""The text without the rest of the line after a ``\boxed{`` that is never closed.

    An answer that was cut off does not count.
    """
    if not _has_command(text):
        return text
    opened = max(text.rfind(command) for command in _COMMANDS)
    if any(box.start >= opened for box in islice(boxes(text), 1)):
        return text
    if text[opened:].split("{", 1)[0] not in _COMMANDS:
        return text
    return text[:opened] + "".join(text[opened:].partition("\n")[1:])
