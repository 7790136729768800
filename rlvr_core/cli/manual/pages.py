"""The pages of the documentation, and their sections."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlvr_core.api import ConfigError

_HERE = Path(__file__).parent
_LISTED = re.compile(r"^- \[[^\]]+\]\(([\w-]+)\.md\): (.+)$", re.MULTILINE)
_HEADING = re.compile(r"^(#+) (.+)$")
_FENCE = re.compile(r"^\s*(```|~~~)")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def home() -> Path:
    """Return the folder of the pages: inside of the installed package, or the clone's own."""
    inside = _HERE / "files"
    return inside if inside.is_dir() else _HERE.parents[2] / "docs"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page, from its heading on, with the sections under it.

    Attributes:
        anchor: What a link to it ends in.
        text: Its lines.
    """

    anchor: str
    text: str


def listed() -> list[tuple[str, str]]:
    """Return the name of each page and what it has, in the order of the index."""
    index = (home() / "index.md").read_text(encoding="utf-8")
    return [(name, _LINK.sub(r"\1", summary)) for name, summary in _LISTED.findall(index)]


def read_page(page: str) -> str:
    """Return the text of a page or of one section of it.

    Args:
        page: A name (``guards``), a section (``guards#parity``), or either as a message writes
            it (``docs/guards.md#parity``).

    Raises:
        ConfigError: If there is no such page or section.
    """
    name, _, anchor = page.partition("#")
    name = name.removeprefix("./").removeprefix("docs/").removesuffix(".md").lower()
    names = {file.stem: file for file in home().glob("*.md")}
    if name not in names:
        raise _unknown("page", name, list(names), "all of them: rlvr docs")
    text = names[name].read_text(encoding="utf-8")
    if not anchor:
        return text
    texts = {section.anchor: section.text for section in sections(text)}
    if anchor not in texts:
        raise _unknown("section", anchor, list(texts), f"the whole page: rlvr docs {name}")
    return texts[anchor]


def sections(text: str) -> Iterator[Section]:
    """Yield the sections of a page; a heading met again has a number at its anchor's end."""
    lines = text.splitlines(keepends=True)
    heads = list(_headings(lines))
    seen: dict[str, int] = {}
    for place, (number, level, title) in enumerate(heads):
        ends = (below for below, deep, _ in heads[place + 1 :] if deep <= level)
        slug = _slug(title)
        times = seen[slug] = seen.get(slug, -1) + 1
        anchor = f"{slug}-{times}" if times else slug
        yield Section(anchor, "".join(lines[number : next(ends, len(lines))]))


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yield number, level and text of each heading outside of code."""
    fenced = False
    for number, line in enumerate(lines):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (heading := _HEADING.match(line.rstrip())):
            yield number, len(heading[1]), heading[2]


def _slug(title: str) -> str:
    """Return the anchor that code hosts make of a heading."""
    plain = _LINK.sub(r"\1", title).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def _unknown(what: str, name: str, names: list[str], all_of_them: str) -> ConfigError:
    close = difflib.get_close_matches(name, names, n=3)
    hint = [f"did you mean: {', '.join(close)}?"] if close else []
    return ConfigError(f"the documentation has no {what} '{name}'", remedy=[*hint, all_of_them])
