"""Finding the final answer in a response. Everything here is linear in the text's length."""

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

_DIGITS = r"(?:\d{1,3}+(?:(?:,|\{,\})\d{3}(?!\d))++|\d++)"
NUMBER = re.compile(
    # A minus right after a digit, letter or closing bracket subtracts; elsewhere it is a sign.
    r"(?:(?<![\w)\]}%])(?P<sign>[-\u2212\u2013]))?"
    r"(?:(?:\\?\$|[€£¥₹])(?P<inner>[-\u2212\u2013](?=[\d.]))?)?"
    r"(?:(?<!\d)(?<!\d\.)(?:"
    rf"(?P<whole>\d++) (?P<top>\d++)/(?P<bottom>\d++)"
    rf"|(?P<over>{_DIGITS})/(?P<under>{_DIGITS})(?![\d/])"
    rf"|(?P<decimal>{_DIGITS}(?:\.\d++)?))"
    r"|(?<![\w.])(?P<bare>\.\d++))"
)
"""A number in running text: sign, currency, thousands separators, decimals, a/b and ``1 1/2``."""

_HASH = re.compile(r"####[ \t]*([^\n]*)")
_HEADING = re.compile(r"[ \t]*[.):][ \t]*\w")
_DENIAL = re.compile(
    r"\banswer(?:\*\*)?(?: is| was| can| could)(?: not|n['\N{RIGHT SINGLE QUOTATION MARK}]t|not)\b",
    re.IGNORECASE,
)
_NOT = re.compile(r"(?:not|never)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?](?=\s)")


@dataclass(frozen=True, slots=True)
class Found:
    """The text of an answer and the rule that found it."""

    text: str
    rule: str


@dataclass(frozen=True, slots=True)
class Box:
    r"""A balanced ``\boxed{...}``: ``text[start:end]`` is all of it, ``content`` what it holds."""

    start: int
    end: int
    content: str


def boxes(text: str) -> Iterator[Box]:
    r"""Balanced, non-empty ``\boxed{...}`` and ``\fbox{...}``, the last to open first.

    Braces are matched in one pass without recursion; ``\{`` and ``\}`` do not count as braces.
    TeX also takes ``\boxed 5``.
    """
    if not any(command in text for command in _COMMANDS):
        return
    closed: list[tuple[int, int, int]] = []
    open_braces: list[tuple[int, int] | None] = []  # starts of command and content; None for {
    for token in _BOX_TOKEN.finditer(text):
        piece = token.group()
        if piece == "}":
            if open_braces and (opened := open_braces.pop()):
                closed.append((*opened, token.end()))
        elif piece == "{":
            open_braces.append(None)
        elif token["bare"]:
            closed.append((token.start(), token.start("bare"), token.end() + 1))
        elif piece.startswith(_COMMANDS):
            open_braces.append((token.start(), token.end()))
    for start, inside, end in sorted(closed, reverse=True):
        if content := text[inside : end - 1].strip():
            bare = text[inside - 1] != "{"
            yield Box(start, end - bare, content.rstrip(".,;:!") if bare else content)


def last_box(text: str) -> Found | None:
    r"""Content of the last non-empty ``\boxed{...}`` to open, so the inner one of nested boxes."""
    box = next(boxes(text), None)
    return Found(box.content, "boxed") if box else None


def first_box(text: str) -> Found | None:
    r"""Content of the first non-empty ``\boxed{...}`` to open."""
    box = next(iter(deque(boxes(text), maxlen=1)), None)
    return Found(box.content, "boxed") if box else None


def without_open_box(text: str) -> str:
    r"""The text without the rest of the line behind a ``\boxed{`` that is never closed.

    An answer that was cut off is no answer.
    """
    opened = max(text.rfind(command) for command in _COMMANDS)
    if opened < 0 or any(box.start >= opened for box in islice(boxes(text), 1)):
        return text
    if text[opened:].split("{", 1)[0] not in _COMMANDS:
        return text
    return text[:opened] + "".join(text[opened:].partition("\n")[1:])


def hash_number(text: str, first: bool = False) -> Found | None:
    """The number after the last (or first) ``####``.

    A Markdown heading such as ``#### 1. Plan`` has none.
    """
    lines: list[str] = _HASH.findall(text) if "####" in text else []
    for line in lines if first else reversed(lines):
        number = NUMBER.search(line)
        if number and not line[: number.start()].strip(" *:="):
            if _HEADING.match(line, number.end()):
                continue
            return Found(number.group(), "####")
    return None


def stated_number(text: str, first: bool = False) -> Found | None:
    """The number of the last (or first) ``answer is ...`` or ``Answer: ...`` that has one.

    Within that sentence the number after the last ``=`` counts, else the first one.
    """
    marks = list(_MARKER.finditer(text)) if _mentions_answer(text) else []
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    said = [text[mark.end() : end] for mark, end in zip(marks, ends, strict=True)]
    for line in said if first else reversed(said):
        sentence = _SENTENCE_END.split(line.partition("\n")[0], maxsplit=1)[0]
        if _NOT.match(sentence):
            continue
        number = NUMBER.search(sentence.rpartition("=")[2]) or NUMBER.search(sentence)
        if number:
            return Found(number.group(), "answer is")
    return None


def denied(text: str) -> bool:
    """Whether the last number of the text is what the answer is said not to be."""
    last = deque(_DENIAL.finditer(text), maxlen=1) if _mentions_answer(text) else ()
    return any(len(list(islice(NUMBER.finditer(text, one.end()), 2))) == 1 for one in last)


def first_number(text: str) -> Found | None:
    """The first number of the text."""
    found = NUMBER.search(text)
    return Found(found.group(), "first number") if found else None


def last_number(text: str) -> Found | None:
    """The last number of the text."""
    end = len(text)
    while end >= 0:  # line by line from the end, as no number goes over a line's end
        start = text.rfind("\n", 0, end) + 1
        if last := deque(NUMBER.finditer(text, start, end), maxlen=1):
            return Found(last[0].group(), "last number")
        end = start - 1
    return None


def only_number(text: str) -> str | None:
    """The number of a short text that has exactly one (after its last ``=``), else None."""
    numbers = list(islice(NUMBER.finditer(text.rpartition("=")[2]), 2))
    return numbers[0].group() if len(numbers) == 1 else None


def _mentions_answer(text: str) -> bool:
    """Whether the word occurs at all: a quick look that spares most texts the search."""
    return "answer" in text.casefold()


_DELIMITER = re.compile(r"\\.|\$\$|\$|\n")
_FORMULA_END = {"\\(": "\\)", "\\[": "\\]", "$": "$", "$$": "$$"}
_MARKER = re.compile(r"\banswer(?:\*\*)?(?: is| was|:| =)(?!\w)[ \t:*=]*", re.IGNORECASE)
_BETWEEN = re.compile(r"\W*(?:(?:so|thus|hence) )?(?:(?:the|my) )?(?:(?:final|correct) )?\Z", re.I)
_PROSE = re.compile(
    r"(?<![\\A-Za-z{ ])[a-z]{2,}+ [a-z]{2,}+(?!\})|(?<=\d) [a-z]{2,}+ [a-z]{2,}+ "
    r"|[-+*/=]\Z|\A[*/=] "
)
_OPENINGS = ("$", "\\(", "\\[")
_LONGEST = 2000
_LEFT_OVER = re.compile(r"[.!?]\s|\.?\s*I hope")


def stated(text: str, first: bool = False) -> Found | None:
    """What the last (or first) ``answer is ...`` says: mathematics if there is any, else text."""
    if not _mentions_answer(text):
        return None
    marks = [found.span() for found in _MARKER.finditer(text)]
    starts = [start for start, _ in marks] + [len(text)]
    said = [(mark[1], end) for mark, end in zip(marks, starts[1:], strict=True)]
    for start, end in said if first else reversed(said):
        line = text[start : min(end, start + _LONGEST)].partition("\n")[0]
        if _BETWEEN.match(line):  # "Final Answer: The final answer is ...", or nothing at all
            continue
        block = text[start : min(end, start + _LONGEST)].lstrip()
        formula = next(_formulas(block), None) if block.startswith(_OPENINGS) else None
        if formula and formula.start == 0:
            content = formula.content
        else:
            content = _LEFT_OVER.split(line, maxsplit=1)[0].strip().strip("*").rstrip(".")
        box = last_box(content)
        content = box.text if box else content.strip()
        if _NOT.match(content) and NUMBER.search(content):
            continue  # "not 5, it is 6"
        if content:
            return Found(content, "answer is")
    return None


def maths(text: str, first: bool = False) -> Found | None:
    r"""The last (or first) ``$...$``, ``\(...\)`` or ``\[...\]`` not prose between prices."""
    formulas = (one for one in _formulas(text) if not _PROSE.search(one.content))
    found = list(deque(islice(formulas, 1 if first else None), maxlen=1))
    return Found(found[0].content, "formula") if found else None


def _formulas(text: str) -> Iterator[Box]:
    """Formulas between their delimiters, in order; a single dollar does not reach past its line."""
    if not any(delimiter in text for delimiter in _OPENINGS):
        return
    opener, start, inside = "", 0, 0
    for token in _DELIMITER.finditer(text):
        piece = token.group()
        if opener and piece == _FORMULA_END[opener] and not _is_money(text, token, inside):
            if content := text[inside : token.start()].strip():
                yield Box(start, token.end(), content)
            opener = ""
        elif piece == "\n":
            opener = "" if opener == "$" else opener
        elif piece in _FORMULA_END and opener not in ("\\(", "\\[", "$$"):
            if piece == "$" and _is_behind_price(text, token):
                continue
            opener, start, inside = piece, token.start(), token.end()


def _is_behind_price(text: str, token: re.Match[str]) -> bool:
    """Whether a dollar sign belongs to the number before it, as in ``45$ - 5$``."""
    return text[token.start() - 1 : token.start()].isdigit() and text[token.end() :][:1].isspace()


def _is_money(text: str, token: re.Match[str], inside: int) -> bool:
    if token.group() != "$":
        return False
    padded = text[token.start() - 1].isspace() and not text[inside].isspace()
    return padded or text[token.end() : token.end() + 1].isdigit()
