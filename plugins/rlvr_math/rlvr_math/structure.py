r"""Structures of final answers: an expression, a list, a tuple or interval, a matrix, a relation.

``read`` takes an answer apart at its outermost commas, relations and brackets; the leaves are
expression trees. ``Words`` stay text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from rlvr_math.forms import (
    Answer,
    Chain,
    Expression,
    Listed,
    Matrix,
    Named,
    Ratio,
    Sequence,
    Words,
)
from rlvr_math.latex import FUNCTIONS, parse
from rlvr_math.number_words import SCALES, spelt
from rlvr_math.relations import RELATIONS, interval, joined, relation
from rlvr_math.spelling import unify
from rlvr_math.tokens import CLOSERS, OPENERS, Token, UnreadableError, split_tokens
from rlvr_math.units import UNIT_WORDS, canonical, change_number, without_money
from rlvr_math.values import contains

MAX_ITEMS = 100
PERCENT = re.compile(r"%|\N{FULLWIDTH PERCENT SIGN}|percent", re.IGNORECASE)
_EQUAL = re.compile(r"=|\\approx(?![A-Za-z])")
_OPEN = {"(": "(", "[": "[", "\\langle": "("}
_CLOSE = {")": ")", "]": "]", "\\rangle": ")"}
_SHORT_WORDS = {"no", "on", "up", "am", "ma", "pm", "mp"}
"""Two letters that are no product; three or more never are one where they stand alone."""
_SILENT = str.maketrans("", "", "()[]{}'\"`,.\\$*!?")
_DEGREES: Token = ("cmd", "\\deg")
_JOINS = {"and", "or", "oder", "und", "and/or"}


_NO_SOLUTION = {
    f"{start}{kind}solution{end}"
    for start in ("no", "thereisno")
    for kind in ("", "real")
    for end in ("", "s")
} | {"emptyset", "theemptyset"}
_ALL_REALS = {"allrealnumbers", "allreals", "therealnumbers", "realnumbers"}
"""Readings by ``word`` of phrases for the empty set and the real line."""

_INFINITE = Expression(("inf",))
_WHOLE_SETS: dict[str, Answer] = {
    "\\varnothing": Listed((), braces=True),
    "\\reals": Sequence(
        "(", (Expression(("mul", ("num", Fraction(-1)), ("inf",))), _INFINITE), ")"
    ),
}


def read(text: str) -> Answer:
    """The structure of an answer.

    Raises:
        UnreadableError: If it has none that is understood, or is beyond the bounds.
    """
    text, currency = without_money(unify(text))
    if currency is None:
        raise UnreadableError("several currencies")
    answer = with_unit(_read(split_tokens(text)), currency)
    if not PERCENT.search(text):
        return answer
    percents = tuple(bool(PERCENT.search(side)) for side in _EQUAL.split(text))
    match answer:  # the tokens have no per cent signs
        case Expression(unit=""):
            return replace(answer, unit="%")
        case Chain(steps) if len(steps) == len(percents):
            return replace(answer, percents=percents)
        case Named(value=Chain(steps) as chain) if len(steps) + 1 == len(percents):
            return replace(answer, value=replace(chain, percents=percents[1:]))
    return answer


def with_unit(answer: Answer, unit: str) -> Answer:
    """An answer all whose values are in a unit."""
    if not unit:
        return answer
    match answer:
        case Expression():
            both = unit if answer.unit in ("", unit) else f"{unit} {answer.unit}"
            return replace(answer, unit=both)
        case Named(value=value):
            return replace(answer, value=with_unit(value, unit))
        case Listed(items) | Sequence(items=items):
            return replace(answer, items=tuple(with_unit(item, unit) for item in items))
        case Chain(steps):
            return replace(answer, values=tuple(replace(step, unit=unit) for step in steps))
    return answer


def _read(tokens: list[Token]) -> Answer:
    if not tokens:
        raise UnreadableError("empty")
    if _DEGREES in tokens and not any(piece in FUNCTIONS for _, piece in tokens):
        return with_unit(_read([token for token in tokens if token != _DEGREES]), "degree")
    if _is_text(tokens):
        minus = "-" if tokens[0][1] == "-" else ""
        spoken = _aloud(tokens[len(minus) :])
        if (number := _spoken(spoken.split(), minus)) is not None:
            return number
        plain = minus + "".join(word(piece) for _, piece in tokens)
        if len(spoken.split()) > 1 and spoken.split()[0].lower() in ("a", "an", "the"):
            plain = word(spoken.split(maxsplit=1)[1])
        if plain in _NO_SOLUTION:
            return _WHOLE_SETS["\\varnothing"]
        return _WHOLE_SETS["\\reals"] if plain in _ALL_REALS else Words(plain)
    items = _split(tokens)
    if len(items) > MAX_ITEMS:
        raise UnreadableError("too many answers")
    outer = _outer(tokens)
    if len(items) > 1:
        answers = tuple(_flat(_read(item) for item in items))
        joints = {piece.strip(" ,").lower() for kind, piece in tokens if kind == "word"}
        return Listed(answers) if "or" in joints else joined(answers, both="and" in joints)
    if ":" in outer:
        return _ratio(tokens, outer)
    if any(piece in RELATIONS for piece in outer):
        return relation(tokens, outer, _read)
    if any(piece in ("\\cup", "\\setminus", "\\cap") for piece in outer):
        return _union(tokens)
    if len(tokens) == 1 and tokens[0][1] in _WHOLE_SETS:
        return _WHOLE_SETS[tokens[0][1]]
    return _bracketed(tokens) or _expression(tokens)


def _flat(items: Iterable[Answer]) -> tuple[Answer, ...]:
    r"""The answers of a list; ``1, \pm 2`` has three."""
    answers: list[Answer] = []
    for item in items:
        if isinstance(item, Listed) and not item.braces:
            answers.extend(item.items)
        else:
            answers.append(item)
    return tuple(answers)


def word(text: str) -> str:
    """A piece of text as it is compared: lower-case, without spaces, quotes, commas, brackets."""
    return "".join(text.casefold().translate(_SILENT).split())


def _is_text(tokens: list[Token]) -> bool:
    if len(tokens) > 3 and tokens[-1][1] in ("!", "?"):
        tokens = tokens[:-1]
    kinds = {kind for kind, _ in tokens}
    if "word" not in kinds:
        spelt = "".join(piece for _, piece in tokens).casefold()
        return kinds == {"sym"} and (len(tokens) == 3 or spelt in _SHORT_WORDS)
    plain = {"(", ")", "-", ",", "{", "}", "'", ".", "&", "/", ":"}
    joined = any(piece in _JOINS for _, piece in tokens)
    return not joined and all(kind in ("word", "sym") or piece in plain for kind, piece in tokens)


def _outer(tokens: list[Token]) -> list[str]:
    """The token texts, those inside brackets replaced by empty text."""
    depth = 0
    pieces = []
    for kind, piece in tokens:
        opens = kind == "begin" or piece in OPENERS
        closes = kind == "end" or piece in CLOSERS
        depth -= closes
        pieces.append("" if depth or opens or closes else piece)
        depth += opens
    return pieces


def _split(tokens: list[Token], separators: tuple[str, ...] = (",", ";")) -> list[list[Token]]:
    """The parts between outermost separators and joining words; empty parts are left out."""
    parts: list[list[Token]] = [[]]
    for token, piece in zip(tokens, _outer(tokens), strict=True):
        joins = token[0] == "word" and piece.strip(" ,").lower() in _JOINS
        if piece in separators or joins or (token[0] == "row" and piece):
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in _or_letters(parts) if part]


def _or_letters(parts: list[list[Token]]) -> list[list[Token]]:
    """Split at ``or``/``and`` spelt as single letters between two numbers, as in ``3 or 4``."""
    separated: list[list[Token]] = []
    for part in parts:
        spelt = "".join(piece if kind == "sym" else "\0" for kind, piece in part)
        for joint in ("and", "or"):
            at = spelt.find(joint)
            if len(spelt) == len(part) and 0 < at < len(part) - len(joint):
                separated.extend([part[:at], part[at + len(joint) :]])
                break
        else:
            separated.append(part)
    return separated


def _ratio(tokens: list[Token], outer: list[str]) -> Answer:
    ends = [-1, *(at for at, piece in enumerate(outer) if piece == ":"), len(tokens)]
    sides = [tokens[start + 1 : end] for start, end in pairwise(ends)]
    parts = tuple(parse(side) for side in sides)
    minutes = [side[0][1] for side in sides[1:] if len(side) == 1]
    clock = len(minutes) == len(sides) - 1 and all(
        len(digits) == 2 and digits < "60" for digits in minutes
    )
    return Ratio(parts, clock)


def _aloud(tokens: list[Token]) -> str:
    """Text as it is said; short words come as single letters."""
    text = "".join(piece if kind == "sym" else f" {piece} " for kind, piece in tokens)
    return " ".join(text.split()).replace(" - ", "-")


def _spoken(words: list[str], minus: str) -> Expression | None:
    """A number in words, with or without a unit."""
    for end in (len(words), len(words) - 1, len(words) - 2):
        unit = words[max(end, 0) :]
        if end < 1 or (unit and unit[-1].lower() not in UNIT_WORDS):
            continue
        if (value := spelt(minus + " ".join(words[:end]))) is not None:
            return Expression(("num", value), unit=canonical(" ".join(unit)))
    return None


def _union(tokens: list[Token]) -> Answer:
    if any(piece in ("\\setminus", "\\cap") for piece in _outer(tokens)):
        raise UnreadableError("set differences and intersections are left to sympy")
    parts = _split(tokens, ("\\cup",))
    if len(parts) <= sum(piece == "\\cup" for piece in _outer(tokens)):
        raise UnreadableError("a union with nothing at one side")
    return Listed(tuple(_read(part) for part in parts))


def _bracketed(tokens: list[Token]) -> Answer | None:
    """Read one pair of brackets around everything."""
    kind, first = tokens[0]
    if kind == "begin":
        return _environment(tokens)
    if tokens[-1][0] == "end":
        return _scaled(tokens)
    if not _encloses(tokens):
        return None
    last, inside = tokens[-1][1], tokens[1:-1]
    if first == "\\{" and last == "\\}":
        if (bar := _such_that(inside)) is not None:
            return _read(inside[bar + 1 :])
        return Listed(tuple(_read(item) for item in _split(inside)), braces=True)
    if first == "{" and last == "}":
        return _read(inside)
    if first not in _OPEN or last not in _CLOSE:
        return None
    if inside and inside[0][0] == "begin" and _encloses(inside):
        return _environment(inside)
    items = _split(inside)
    if (first, last) == ("[", "]") and all(_is_row(item) for item in items) and items:
        return Matrix(
            tuple(tuple(_read(cell) for cell in _split(item[1:-1])) for item in items), False
        )
    if len(items) < 2:
        return _read(inside) if (first, last) == ("(", ")") and items else None
    if len(items) > MAX_ITEMS:
        raise UnreadableError("too many items")
    return interval(_OPEN[first], tuple(_read(item) for item in items), _CLOSE[last])


def _is_row(tokens: list[Token]) -> bool:
    """Whether it is a row of a matrix that is written as a list of lists."""
    return tokens[0][1] == "[" and tokens[-1][1] == "]" and _encloses(tokens)


def _such_that(tokens: list[Token]) -> int | None:
    r"""Where the bar or colon of ``x \mid 0 < x`` stands, None if there is none."""
    outer = _outer(tokens)
    bar = next((at for at, piece in enumerate(outer) if piece in ("|", ":")), None)
    if not bar or tokens[0][0] != "sym" or bar + 1 == len(tokens):
        return None
    return bar if bar == 1 or outer[1] == "\\in" else None


def _encloses(tokens: list[Token]) -> bool:
    """Whether the first token opens a bracket that only the last one closes."""
    depth = 0
    for at, (kind, piece) in enumerate(tokens):
        depth += (piece in OPENERS or kind == "begin") - (piece in CLOSERS or kind == "end")
        if depth == 0:
            return at == len(tokens) - 1 and at > 0
    return False


def _environment(tokens: list[Token]) -> Answer | None:
    if tokens[0][1] == "cases" and _encloses(tokens):
        lines = _split(
            [("chr", ",") if kind == "row" else (kind, piece) for kind, piece in tokens[1:-1]]
        )
        return Listed(tuple(_read(line) for line in lines if line))
    name = tokens[0][1]
    is_matrix = name == "array" or ("matrix" in name and tokens[-1][0] == "end")
    if not is_matrix or not _encloses(tokens):
        return None
    rows: list[list[list[Token]]] = [[[]]]
    depth = 0
    for kind, piece in tokens[1:-1]:
        depth += (kind == "begin") - (kind == "end")
        if kind == "row" and not depth:
            rows.append([[]])
        elif piece == "&" and not depth:
            rows[-1].append([])
        else:
            rows[-1][-1].append((kind, piece))
    cells = tuple(tuple(_read(cell) for cell in row) for row in rows if any(row))
    return Matrix(cells, name.lower().startswith("v"))


def _scaled(tokens: list[Token]) -> Answer | None:
    """A matrix with a number in front of it."""
    at = next((at for at, (kind, _) in enumerate(tokens) if kind == "begin"), None)
    if at is None:
        return None
    matrix = _environment(tokens[at:])
    factor = parse(tokens[:at] + ([("num", "1")] if tokens[at - 1][1] == "-" else []))
    if not isinstance(matrix, Matrix) or matrix.bars:
        return None
    rows = []
    for row in matrix.rows:
        trees = [cell.tree for cell in row if isinstance(cell, Expression)]
        if len(trees) < len(row) or contains(factor, "pm"):
            return None
        rows.append(tuple(Expression(("mul", factor, tree)) for tree in trees))
    return Matrix(tuple(rows), False)


def _expression(tokens: list[Token]) -> Answer:
    tokens, unit = _cut_unit(tokens)
    tree = parse(tokens)
    if contains(tree, "pm"):
        return Listed((Expression(tree, 1, unit), Expression(tree, -1, unit)))
    return Expression(tree, unit=unit)


def _cut_unit(tokens: list[Token]) -> tuple[list[Token], str]:
    """The expression and the words, or the base of a numeral, after it."""
    pieces = [piece for _, piece in tokens]
    if tokens[0][0] == "num" and len(tokens) > 2 and pieces[1] == "_":
        base = "".join(pieces[2:]).strip("{}")
        if base.isdigit():
            return tokens[:1], f"base {base}"
    power = ""
    end = len(tokens)
    if end > 5 and pieces[-4:-2] == ["^", "{"] and tokens[-5][0] == "word":
        power, end = pieces[-2], end - 4
    elif end > 3 and pieces[-2] == "^" and tokens[-3][0] == "word":
        power, end = pieces[-1], end - 2
    start = end
    while start > 1 and tokens[start - 1][0] == "word":
        start -= 1
    words = [part for piece in pieces[start:end] for part in piece.split()]
    if words and words[0].lower() in SCALES:
        scale = ("num", str(SCALES[words[0].lower()]))
        tokens = [*tokens[:start], ("chr", "*"), scale]
        start, words = len(tokens), words[1:]
        end = start + len(words)
    if change_number([part.lower() for part in words]):
        raise UnreadableError("words that change the number")
    if start == end:
        return tokens, ""
    return tokens[:start], canonical(" ".join(words), power)
