r"""Finds the option that an answer to a multiple-choice question names, if it is one.

The answer is looked for in this order, and the first place that is there decides: ``<answer>``,
``\boxed{}``, the last statement ("the answer is ...", "option B is correct"), the whole text, its
last line, its first line, the one option that the last sentence points at. A place that is empty,
names two options or denies one gives no answer; later places are not tried. There are three
exceptions: a box with a value that no option has gives way to a statement behind it, a statement
that is cut off before it says anything to the one before, and what follows a question of the
model's own ("Question: ...") is read only where no answer stands before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlvr_checks.choice.options import Options
from rlvr_checks.choice.places import Marked, Match, before_question, boxed, tagged
from rlvr_checks.choice.statements import statement
from rlvr_checks.choice.text import bare, plain
from rlvr_core.api import spoken

_READ = 50_000
"""Characters at the end of an answer that are read."""

Place = Literal[
    "answer tag", "box", "statement", "whole answer", "last line", "first line", "last sentence"
]


@dataclass(frozen=True, slots=True)
class Choice:
    """The result of reading an answer.

    Attributes:
        letter: The letter of the option; None if no single one is named.
        place: Where the answer was looked for; None if there is no such place.
        text: The text.
    """

    letter: str | None
    place: Place | None
    text: str


def read_choice(text: str, options: Sequence[str], match: Match = "last") -> Choice:
    """Read the option that an answer names.

    Args:
        text: The answer.
        options: Texts of the options, from A on.
        match: Which one counts of several tags, boxes or statements.
    """
    text = spoken(text)
    text = plain(text[-_READ:] if match == "last" else text[:_READ])
    reader = _Reader(options, match)
    before = before_question(text)
    if before != text:
        choice = reader.read(before)
        if choice.letter or choice.place in ("answer tag", "box", "statement"):
            return choice
    return reader.read(text)


_REASON = re.compile(r"(\(?[A-J]\)?)[,.:]?\s+(?:because|since|as)\b")
_STATES = re.compile(r"\b(?:is|are) (?:the )?(?:correct|right|best|answer)\b", re.IGNORECASE)
_SO = re.compile(r"(?:thus|therefore|so|hence|then|clearly)\W+", re.IGNORECASE)
_LISTING = re.compile(
    r"(?:\b(?:[A-J]|or|and|not|nor|neither|either|both|maybe|none|all|unknown|options?|choices?|"
    r"answers?|the|is|of|these|above)\b|[\W_])*",
    re.IGNORECASE,
)
"""Letters of options and words between them, or nothing."""
_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=\S)")
_MARKED = re.compile(r"\(([A-J])\)|\*\*\(?([A-J])\)?\.?\*\*|\b[Oo]ption ([A-J])\b")
_DOUBTED = re.compile(
    r"\b(?:not|never|cannot|neither|nor|wrong|incorrect|false|except|either|or|maybe|perhaps|might|"
    r"could|eliminat\w*|exclude\w*|if)\b|n't\b|\?",
    re.IGNORECASE,
)
_LETTER_MARK = re.compile(
    r"(?:(?:(?<=\bis)|(?<=\bis:)|(?<=\bare)|(?<=\bbe)|(?<=\bas)|(?<=\bcalled))\s|(?<![A-Za-z0-9]))"
    r"\(?([A-J])[).:]+\s+"
)
_RELATIVE = re.compile(
    r"\b(?:that|which|who)\b(?:(?!\b(?:that|which|who)\b)[^.!?]){1,200}?\b(?:is|are|be):?"
    r"(?=\s+(?:option\s+)?[(*]*[A-J]\b|\s*$)"
)
"""``the statement that is not true is (B)``: no denial of B."""
_NUMBER = re.compile(r"[\s*#]*(\d{1,3})([.)])[\s*]*")
_ITEM = re.compile(r"\s*(\W{0,4})([A-J])([).:])")
_LONGEST = 1000
"""Characters of the last line that are looked at."""


class _Reader:
    """Looks for the answer in one place after the other."""

    def __init__(self, options: Sequence[str], match: Match) -> None:
        self._options = Options(options)
        self._match = match

    def read(self, text: str) -> Choice:
        """Read a whole answer."""
        if (marked := tagged(text, self._match)) is not None:
            inside = boxed(marked.content)
            letter = self._options.strict(marked.content if inside is None else inside.content)
            return Choice(letter, "answer tag", marked.content[:200])
        if (marked := boxed(text, self._match)) is not None:
            return self._boxed(marked, text)
        if (stated := statement(text, self._options, self._match)) is not None:
            return Choice(self._options.beginning(stated), "statement", stated[:200])
        return self._unmarked(text)

    def _boxed(self, box: Marked, text: str) -> Choice:
        letter = self._options.strict(box.content)
        if letter is None and not _LISTING.fullmatch(bare(box.content)):
            # a value on the way to the answer
            stated = statement(text[box.end :], self._options, self._match)
            if stated is not None and (letter := self._options.beginning(stated)):
                return Choice(letter, "statement", stated[:200])
        return Choice(letter, "box", box.content[:200])

    def _unmarked(self, text: str) -> Choice:
        """Return the answer of a text that neither marks nor states it."""
        if letter := self._options.strict(text):
            return Choice(letter, "whole answer", text[:200])
        lines = [line for line in text.split("\n") if line.strip()]
        if not lines:
            return Choice(None, None, "")
        read = [self._options.strict(line) for line in lines]
        if read[-1] and (_breaks_off(lines) or _in_formula(text)):
            return Choice(None, "last line", lines[-1][:200])
        if read[-1] and (len(read) < 2 or read[-2] in (None, read[-1])):
            return Choice(read[-1], "last line", lines[-1][:200])
        if read[0] and {letter for letter in read if letter} == {read[0]}:
            return Choice(read[0], "first line", lines[0][:200])
        if read[-1]:
            return Choice(None, "last line", lines[-1][:200])
        return self._pointed(lines[-1])

    def _pointed(self, line: str) -> Choice:
        """Return the only marked letter of the last sentence's end: ``we are left with (B)``."""
        line = line[-_LONGEST:]
        if reason := _REASON.match(bare(line)):
            return Choice(self._options.strict(reason[1]), "last line", line[:200])
        if letter := self._lettered(bare(line)):
            return Choice(letter, "last sentence", line[-200:])
        sentence = _SENTENCES.split(line.strip())[-1]
        conclusion = _SO.sub("", bare(sentence), count=1)
        if _STATES.search(conclusion) and (stated := self._options.stated(conclusion)) is not None:
            return Choice(stated, "last sentence", sentence[:200])
        marked = list(_MARKED.finditer(sentence))
        letters = {mark[1] or mark[2] or mark[3] for mark in marked}
        doubted = _DOUBTED.search(_RELATIVE.sub("", sentence))
        letter = letters.pop() if len(letters) == 1 and not doubted else None
        if letter and not self._options.ends(letter, bare(sentence[marked[-1].end() :])):
            letter = None
        return Choice(letter, "last sentence", sentence[:200])

    def _lettered(self, line: str) -> str | None:
        """Return the letter before its own option's text: ``it is called B. mitosis``."""
        letters = set()
        for mark in _LETTER_MARK.finditer(line):
            rest = line[mark.end() :]
            if self._options.has_text(mark[1], rest) or (
                mark[0][0] == " " and self._options.begins(mark[1], rest)
            ):
                before = _SENTENCES.split(line[: mark.start() + 1])[-1]
                letters.add("" if _DOUBTED.search(_RELATIVE.sub("", before)) else mark[1])
        return letters.pop() or None if len(letters) == 1 else None


def _in_formula(text: str) -> bool:
    """Return whether a text ends inside a displayed formula."""
    return text.count("$$") % 2 == 1 or text.count(r"\[") > text.count(r"\]")


def _breaks_off(lines: list[str]) -> bool:
    """Return whether the last line is a lettered or numbered list item, so the text is cut off."""
    if number := _NUMBER.fullmatch(lines[-1]):
        before = f"{int(number[1]) - 1}{number[2]}"
        return any(line.lstrip(" *#").startswith(before) for line in lines[:-1])
    previous, other = _ITEM.match(lines[-2]) if len(lines) > 1 else None, _ITEM.match(lines[-1])
    return bool(
        previous
        and other
        and (previous[1], previous[3]) == (other[1], other[3])
        and ord(other[2]) == ord(previous[2]) + 1
    )
