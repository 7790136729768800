"""Reads conclusions in running text, and answers as single numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from rlvr_math import compare, prose, symbolic, values
from rlvr_math.boxes import Found
from rlvr_math.forms import Answer, Chain, Expression, Named
from rlvr_math.latex import GREEK, Tree
from rlvr_math.relations import is_named
from rlvr_math.spelling import MAX_CHARACTERS, unify
from rlvr_math.tokens import UnreadableError, split_tokens

_SIDES = re.compile(
    r"\\(?:left|right)(?![A-Za-z])|\\(?P<edge>begin|end)(?![A-Za-z])|\\[{}]"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<equal>=)"
)
_LONGEST = 200
_WORDED = re.compile(r"\b(?:is|are|equals?|exactly|be|has|have)\b", re.IGNORECASE)
_STYLED = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mbox)\s?\{([^{}]*)\}")
_OPENS = re.compile(r"\b(?:is|are|equals?|exactly|be|has|have)\W*\Z", re.IGNORECASE)
_ADDED = re.compile(r"\b(?:and|or|but|not|than|times|if|plus|minus|wrong)\b|\d", re.IGNORECASE)
_CONSTANT = {"e", "i"}


def readings(answer: Found) -> Iterator[str]:
    """The answer as found; of a calculation in running text also what it comes to."""
    yield answer.text
    if answer.rule == "boxed" and (value := _in_a_sentence(answer.text)):
        yield value
    if answer.prose and (last := _last_side(answer.text)):
        yield last


def _last_side(text: str) -> str | None:
    r"""``x = 7`` of ``x = 3 + 4 = 7``, and ``7`` of ``3 + 4 = 7``, whether that is so or not."""
    if "=" not in text or len(text) > MAX_CHARACTERS:
        return None
    text = unify(text)
    depth, at, sides = 0, 0, []
    for token in _SIDES.finditer(text):
        depth += bool(token["open"]) + (token["edge"] == "begin")
        depth -= bool(token["close"]) + (token["edge"] == "end")
        if token["equal"] and not depth:
            sides.append(text[at : token.start()])
            at = token.end()
    sides.append(text[at:])
    first, last = sides[0].strip(), sides[-1].strip()
    if len(sides) < 2 or not last:
        return None
    if not first or not _has_variables(first):
        return last
    return f"{first} = {last}" if len(sides) > 2 else None


def _in_a_sentence(text: str) -> str | None:
    """Return the result in a boxed sentence: 7 in "the answer is 7"."""
    if len(text) > _LONGEST or not _WORDED.search(text):
        return None
    plain = _STYLED.sub(r" \1 ", text)
    runs = prose.runs(plain)
    if len(runs) != 1 or "?" in plain:
        return None
    (run,) = runs
    opened = _OPENS.search(run.before) and not run.denied and not run.partial
    return run.text if opened and not _ADDED.search(run.after) else None


def _has_variables(text: str) -> bool:
    try:
        tokens = split_tokens(text)
    except UnreadableError:
        return True
    if is_named(tokens):
        return True
    return any(
        (kind == "sym" and piece not in _CONSTANT)
        or (kind == "cmd" and GREEK.match(piece) is not None)
        for kind, piece in tokens
    )


def constant(text: str) -> Fraction | None:
    """The exact value of an answer that is one rational number, with or without name and unit."""
    answer = symbolic.structure(text)
    return None if answer is None else _value(answer)


def _value(answer: Answer) -> Fraction | None:
    match answer:
        case Expression(tree, sign):
            return _rational(tree, sign)
        case Named(_, value):
            return _value(value)
        case Chain():
            ends = symbolic.Comparison().ends(answer)
            return _value(ends[0]) if ends else None
    return None


def _rational(tree: Tree, sign: int) -> Fraction | None:
    try:
        value = values.evaluate(tree, {}, sign)
    except (values.NoValueError, OverflowError, ValueError):
        return None
    return value if isinstance(value, Fraction) else None


def amount(text: str) -> Fraction | None:
    """A short text as one number, or None."""
    value = compare.number(compare.normalise(text))
    return constant(text) if value is None else value


def same_amount(gold: str, answer: Found, tolerance: float = 0.0) -> str | None:
    """``number`` if a reference and what was found are the same one number, else None."""
    left = amount(gold)
    if left is None:
        return None
    for text in readings(answer):
        right = amount(text)
        if right is None:
            continue
        if left == right:
            return "number"
        near = Fraction(tolerance) * max(abs(left), abs(right))
        if left.denominator != 1 and abs(left - right) <= near:
            return f"number to {tolerance:g}"
    return None


def is_whole(gold: str) -> bool:
    """Whether a reference is written as a whole number, which is exact."""
    return compare.normalise(gold).text.removeprefix("-").isdecimal()
