"""Text as rows of a terminal: what anybody wrote is shown as text, in rows of at most a width."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import get_character_cell_size

from rlvr_core.api.services import printable

Piece = tuple[str, str]
"""Text, and the name of its style."""
_NEAR = 24
"""Columns before the end of a row in which a blank is looked for to break at."""


@dataclass(frozen=True, slots=True)
class Block:
    """Text that belongs together.

    Attributes:
        pieces: The text.
        margin: What stands before each row, so that no text can be taken for another's.
        name: What it can be found by.
    """

    pieces: tuple[Piece, ...]
    margin: str = ""
    name: str = ""


def block(text: str, style: str = "", *, margin: str = "", name: str = "") -> Block:
    """Return a block of one piece."""
    return Block(((text, style),), margin, name)


def one_line(text: str, limit: int = 200) -> str:
    """Return text as it stands in a cell of a table."""
    return printable(text[:limit]).replace("\n", " ").replace("\t", " ")


def rows(one: Block, width: int) -> Iterator[list[Piece]]:
    """Yield the rows of a block, without its margin; the text is gone over once."""
    for line in _lines(one.pieces):
        text = "".join(part for part, _ in line)
        start = place = number = 0
        for end in (*_breaks(text, max(1, width)), len(text)):
            row: list[Piece] = []
            while number < len(line):
                part, style = line[number]
                if shown := part[max(0, start - place) : end - place]:
                    row.append((shown, style))
                if place + len(part) > end:
                    break
                place, number = place + len(part), number + 1
            yield row
            start = end


def _lines(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    line: list[Piece] = []
    for text, style in pieces:
        first, *others = printable(text).replace("\t", "    ").split("\n")
        line.append((first, style))
        for part in others:
            yield line
            line = [(part, style)]
    yield line


def _breaks(text: str, width: int) -> Iterator[int]:
    """Yield the places at which a line is broken."""
    plain, start = text.isascii(), 0
    while True:
        end = start + width if plain else _fitting(text, start, width)
        if end >= len(text):
            return
        blank = text.rfind(" ", max(start + 1, end - _NEAR), end)
        start = blank + 1 if blank > 0 else end
        yield start


def _fitting(text: str, start: int, width: int) -> int:
    """Return the place behind the characters that fit into a row; at least one does."""
    used = 0
    for place in range(start, len(text)):
        used += _cells(text[place])
        if used > width and place > start:
            return place
    return len(text)


@lru_cache(maxsize=4096)
def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return get_character_cell_size(character)
