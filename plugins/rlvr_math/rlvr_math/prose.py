r"""Whole mathematical expressions in running text.

A *run* is a number or formula with everything that belongs to it: operators, brackets, signs and
words of sign, scales (``5 million``), units, and what is joined to it by ``or`` or a comma. No
number is ever cut out of a longer expression. Linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rlvr_math import number_words
from rlvr_math.marking import JOINS, Token, tokenised

_CLAUSES = {"in", "for", "when", "if", "with", "at", "after", "by", "since", "as", "from", "given"}
_LAYOUT = {"\\left", "\\right", "\\item", "\\boxed", "\\fbox", "\\begin", "\\end"}
_EDGE_LEFT = "...*/^_!%':&=\u00d7\u00f7\u00b7\u22c5\u2248\u2026 "
_EDGE_RIGHT = "...*/^_=<>:&+-\u2212\u2013\u00d7\u00f7\u00b7\u22c5\u2248\u2264\u2265' "
_DENIED = re.compile(
    r"(?:\b(?:not|never|cannot|neither|nor|except|excluding|false|impossible|wrong|unlike"
    r"|rather than|instead of|other than|anything but|differs? from|different from"
    r"|apart from)|n['\u2019]t)\b",
    re.IGNORECASE,
)
_REFUTED = re.compile(
    r"\W*(?:(?:is|was|are|would be|must be) (?:\w+ ){0,2}?(?:not|wrong|incorrect|false|impossible)"
    r"|(?:is|are|was|ca|wo)n['\u2019]t|cannot|fails)\b",
    re.IGNORECASE,
)
_PART_OF = re.compile(
    r"\b(?:than|at (?:least|most)|up to|between|beyond|twice|thrice|double|triple"
    r"|under|over|above|below|differs? from"
    r"|(?:half|third|quarter|root|square|cube|multiple|factor|power|logarithm|log|reciprocal"
    r"|inverse|opposite|negative|times|percent|modulo|factorial) of(?: the)?)\W*\Z",
    re.IGNORECASE,
)
_MORE = re.compile(
    r"\W{0,3}(?:more|less|fewer|greater|smaller|larger|bigger) than\b|\W{0,3}times as\b"
    r"|\ or (?:more|less|fewer)\b",
    re.IGNORECASE,
)
_MAYBE = re.compile(r"\b(?:might|may|could|perhaps|maybe|possibly)\b", re.IGNORECASE)
_OR = re.compile(r"(?:\W|\b(?:either|maybe|perhaps|possibly|even|else)\b)*\Z", re.IGNORECASE)


@dataclass(slots=True)
class Run:
    """One whole expression of a text.

    Attributes:
        text: The expression, words of sign and scale as symbols.
        start: Where it begins.
        end: Where it ends.
        sentence: Number of the sentence that it stands in.
        before: The text between what comes before it in the sentence and it.
        after: The rest of the sentence.
        formula: Whether a part of it is set as mathematics.
        denied: Whether the text says that it is not so.
        partial: Whether words around it make another value of it: ``more than 5``.
        question: Whether its sentence asks.
    """

    text: str
    start: int
    end: int
    sentence: int
    before: str = ""
    after: str = ""
    formula: bool = False
    denied: bool = False
    partial: bool = False
    question: bool = False


def runs(text: str, starts_line: bool = True) -> list[Run]:
    """All whole expressions of a text, in order; ``1.`` counts items where a line starts."""
    tokens = tokenised(text, starts_line)
    expressions: list[Run] = []
    sentence, begin = 0, 0
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.kind == "end":
            _close(expressions, text, sentence, token.start)
            for earlier in expressions if token.text == "?" else ():
                earlier.question = earlier.question or earlier.sentence == sentence
            sentence, begin = sentence + 1, token.end
            at += 1
        elif token.maths:
            stop = at
            while stop < len(tokens) and not _parts(tokens, at, stop):
                stop += 1
            run = _run(tokens[at:stop], sentence)
            if run:
                run.before = text[max(begin, 0) : run.start]
                _context(expressions, run)
                expressions.append(run)
                begin = run.end
            at = stop
        else:
            at += 1
    _close(expressions, text, sentence, len(text))
    return _joined(expressions)


def _bridges(tokens: list[Token], start: int, at: int) -> bool:
    """Whether a comma or a joining word between two expressions makes them one answer."""
    token = tokens[at]
    joins = token.kind == "word" and token.text.casefold() in JOINS
    if not (token.kind == "sep" or joins or token.kind == "space"):
        return False
    rest = at
    words = 0
    while rest < len(tokens) and not tokens[rest].maths:
        gap = tokens[rest]
        joining = gap.kind == "word" and gap.text.casefold() in JOINS
        if not (gap.kind in ("sep", "space") or joining) or rest - at > 5:
            return False
        words += joining
        rest += 1
    if rest == len(tokens) or words > 1 or (tokens[rest].kind == "op" and not _leads(tokens[rest])):
        return False
    if token.kind == "sep" and token.text == "," and not words:
        opener = _word_before(tokens, start)
        if opener in _CLAUSES:
            return False
    if joins:
        token.reading = f" {token.text.casefold()} " if token.text != "to" else ":"
    return True


def _parts(tokens: list[Token], start: int, at: int) -> bool:
    """Whether a token is no part of the expression before it."""
    token = tokens[at]
    if not token.maths:
        return not _bridges(tokens, start, at)
    before = next(
        (previous for previous in reversed(tokens[start:at]) if previous.kind != "space"), token
    )
    if token.text == "(" and tokens[at - 1].kind == "space" and at > start:
        return before.kind == "num" or (before.kind == "word" and len(before.text) > 1)
    if at == start or token.kind not in ("formula", "num"):
        return False
    if token.kind == "formula":
        joined = before.kind in ("formula", "num", "close") and token.reading[:1] not in "\\-+=<>"
        return joined and not token.reading.startswith("%")
    return before.kind == "formula"


def _leads(token: Token) -> bool:
    return token.text in ("-", "\u2212", "\u2013", "+", "\u00b1", "\u221a", "|", "\u221e", "$")


def _word_before(tokens: list[Token], at: int) -> str:
    for token in reversed(tokens[max(0, at - 3) : at]):
        if token.kind == "word":
            return token.text.casefold()
        if token.kind != "space":
            return ""
    return ""


def _run(tokens: list[Token], sentence: int) -> Run | None:
    """The expression that tokens make, without what hangs loose at its ends; None if none."""
    tokens = _trimmed(tokens)
    if not any(_carries(token) for token in tokens):
        return None
    if len(tokens) == 1 and tokens[0].kind == "word" and len(tokens[0].text) == 1:
        return None  # a letter of a text, with punctuation
    pieces = [
        f" {token.reading} " if token.kind == "formula" else token.reading for token in tokens
    ]
    text = " ".join("".join(pieces).split())
    if text[:1] == "{" and text.find("}") == len(text) - 1:
        text = text[1:-1].strip()
    formula = any(token.kind in ("formula", "cmd") for token in tokens)
    return Run(text, tokens[0].start, tokens[-1].end, sentence, formula=formula)


def _trimmed(tokens: list[Token]) -> list[Token]:
    start, stop = 0, len(tokens)
    loose = "|" * (sum(token.text == "|" for token in tokens) % 2)
    while True:
        depth = least = 0
        for token in tokens[start:stop]:
            depth += (token.kind == "open") - (token.kind == "close")
            least = min(least, depth)
        before = start, stop
        if start == stop:
            return []
        first, last = tokens[start], tokens[stop - 1]
        if (
            first.kind in ("space", "sep", "close")
            or (first.kind == "op" and first.text in _EDGE_LEFT + loose)
            or (first.kind == "open" and depth > 0)
        ):
            start += 1
        elif (
            last.kind in ("space", "sep", "open")
            or (last.kind == "op" and last.text in _EDGE_RIGHT + loose)
            or (last.kind == "close" and least < 0)
        ):
            stop -= 1
        if (start, stop) == before:
            return tokens[start:stop]


def _carries(token: Token) -> bool:
    """Whether a token has a value, so that an expression may consist of it."""
    if token.kind in ("num", "formula", "date"):
        return True
    if token.kind == "cmd":
        return token.text[1:2].isalpha() and token.text not in _LAYOUT
    return (token.kind in ("word", "styled") and bool(token.reading.strip())) or token.text in (
        "\u221e",
        "\u2205",
    )


def _context(earlier: list[Run], run: Run) -> None:
    """Read from the words in front whether a run is denied, or only a part of a value."""
    clause = re.split(r"[,;:]|(?<!anything )\b(?:but|so|hence|thus|therefore)\b", run.before)[-1]
    run.denied = bool(_DENIED.search(clause))
    run.partial = bool(_PART_OF.search(run.before))
    if earlier and earlier[-1].sentence == run.sentence:
        earlier[-1].after = run.before
        _refute(earlier[-1])


def _close(earlier: list[Run], text: str, sentence: int, end: int) -> None:
    if earlier and earlier[-1].sentence == sentence and not earlier[-1].after:
        earlier[-1].after = text[earlier[-1].end : end]
        _refute(earlier[-1])


def _refute(run: Run) -> None:
    run.denied = run.denied or bool(_REFUTED.match(run.after))
    run.partial = run.partial or bool(_MORE.match(run.after))


def _joined(expressions: list[Run]) -> list[Run]:
    """Runs with ``or`` between them as one, whatever they are said to count."""
    joined: list[Run] = []
    for run in expressions:
        last = joined[-1] if joined else None
        if last is not None and last.sentence == run.sentence:
            head, word, tail = run.before.rpartition("or")
            alone = not head[-1:].isalpha() and bool(_OR.match(tail))
            either = bool(_MAYBE.search(run.before) and _MAYBE.search(last.before))
            if ((word and alone) or either) and not run.denied and not last.denied:
                last.text = f"{last.text} or {run.text}"
                last.end, last.after = run.end, run.after
                last.partial = last.partial or run.partial
                last.formula = last.formula or run.formula
                continue
        joined.append(run)
    return joined


def iterate(text: str) -> Iterator[Run]:
    """The runs of a text from its end, line by line; a displayed formula counts as one line."""
    end = len(text)
    while end > 0:
        start = _line_start(text, end)
        if _PROMISING.search(text, start, end):
            yield from reversed(runs(text[start:end]))
        end = start


def _line_start(text: str, end: int) -> int:
    start = text.rfind("\n", 0, end - 1) + 1
    if start and (closer := _CLOSER.search(text, start, end)):
        opener = _OPENERS.get(closer[0], "\\begin")
        opened = text.rfind(opener, max(0, end - WINDOW), closer.start())
        if 0 <= opened < start:
            start = text.rfind("\n", 0, opened) + 1
    return max(start, end - WINDOW)


WINDOW = 2000
"""Characters that are read at a time."""
_CLOSER = re.compile(r"\\\]|\$\$|\\end(?=\s?\{)")
_OPENERS = {"\\]": "\\[", "$$": "$$"}
_PROMISING = re.compile(
    r"[-+*/\u2212] ?[A-Za-z]|[A-Za-z)] ?[-+*/\u2212]"
    r"|[\d$\\=<>^\u221a\u221e\u03c0\u2205\u00bc-\u00be\u2150-\u215e]|\bpi\b|infinity|dozen"
    rf"|\b(?:{'|'.join(number_words.SMALL)}|hundred|thousand|million|billion|half|third)",
    re.IGNORECASE,
)
