r"""Relations between expressions: what ``x = 5``, ``1 < x \le 2`` and ``3 + 4 = 7`` say."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

from rlvr_math.forms import Answer, Chain, Expression, Listed, Named, Relation, Sequence
from rlvr_math.latex import Tree, parse
from rlvr_math.tokens import Token, UnreadableError
from rlvr_math.units import change_number
from rlvr_math.values import NoValueError, contains, evaluate, real, rounds_to, symbols

RELATIONS = {"=", "<", ">", "\\le", "\\ge", "\\ne", "\\in", "\\approx"}
_CONSTANTS = {("pi",), ("sym", "e")}
_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}
_APPLIED = re.compile(
    r"[a-zA-Z]'{0,3}(?:\^\{-1\})?\((?:[a-z]|-?\d{1,6})\)|[a-z]'{1,3}|\\frac\{d[a-z]?\}\{d[a-z]\}"
)
_MEASURED = re.compile(r"m?\\(?:angle|triangle)[A-Z]{1,3}|[A-Z]{2,4}|\|[A-Z]{2}\||\[[A-Z]{3,4}\]")


def relation(
    tokens: list[Token], outer: list[str], read: Callable[[list[Token]], Answer]
) -> Answer:
    """Read tokens with a relation outside their brackets.

    Args:
        tokens: Both sides.
        outer: Their texts, those inside brackets replaced by empty text.
        read: Gives the answer that stands at one side.

    Raises:
        UnreadableError: If it is not understood.
    """
    at = [index for index, piece in enumerate(outer) if piece in RELATIONS]
    operations = [outer[index] for index in at]
    ends = [-1, *at, len(tokens)]
    sides = [tokens[start + 1 : end] for start, end in pairwise(ends)]
    if operations == ["\\approx"] and not sides[0] and sides[1]:
        return read(sides[1])  # "about 8.24"
    if not all(sides):
        raise UnreadableError("half a relation")
    if operations == ["\\approx"] and (constant := _rounded_constant(*sides)):
        return constant
    if len(operations) == 1 and operations[0] in ("=", "\\in", "\\approx"):
        if all(kind == "word" for kind, _ in sides[0]) and not change_number(_lower(sides[0])):
            return read(sides[1])  # "Area = 5"
        name = _name(sides[0])
        if name:
            return Named(name, read(sides[1]), _tree_or_none(sides[0]))
    if len(operations) == 2 and (name := _name(sides[1])) and operations[0] != "=":
        sides[1] = [("sym", name)]
    trees = [parse(side) for side in sides]
    if operations == ["="] and (name := _name(sides[1])) and not symbols(trees[0]):
        return Named(name, read(sides[0]), trees[1])
    constants = not any(map(symbols, trees))
    if len(operations) == 1 and not (constants and operations[0] in ("=", "\\approx")):
        return _single(operations[0], trees[0], trees[1])
    return _chain(operations, trees)


def _rounded_constant(left: list[Token], right: list[Token]) -> Chain | None:
    r"""``\pi \approx 3.14``, where the left side is no name of something else."""
    constant, decimal = _tree_or_none(left), _tree_or_none(right)
    if constant not in _CONSTANTS or decimal is None or symbols(decimal):
        return None
    try:
        if not rounds_to(evaluate(constant, {}), evaluate(decimal, {})):
            return None
    except NoValueError:
        return None
    return Chain((Expression(constant), Expression(decimal)), exact=False)


def interval(opener: str, items: tuple[Answer, ...], closer: str, name: str = "") -> Sequence:
    """A sequence; an end at infinity is open whatever the bracket."""
    if len(items) == 2 and _infinite(items[0]):
        opener = "("
    if len(items) == 2 and _infinite(items[1]):
        closer = ")"
    return Sequence(opener, items, closer, name)


def _infinite(answer: Answer) -> bool:
    return isinstance(answer, Expression) and contains(answer.tree, "inf")


def _name(tokens: list[Token]) -> str:
    """The text of a variable or an applied function such as ``f(x)``; "" if it is neither."""
    if quantity := _quantity(tokens):
        return quantity
    if any(kind not in ("sym", "cmd", "chr", "word") for kind, _ in tokens):
        return "".join(piece for _, piece in tokens) if _is_subscripted(tokens) else ""
    pieces = [piece for _, piece in tokens]
    applied = len(tokens) >= 4 and pieces[1] == "(" and pieces[-1] == ")" and len(tokens) <= 8
    if pieces[0] == "(" and pieces[-1] == ")" and all(piece == "," for piece in pieces[2:-1:2]):
        return "".join(pieces) if all(kind == "sym" for kind, _ in tokens[1:-1:2]) else ""
    single = len(tokens) == 1 and tokens[0][0] != "chr"
    if single or _is_subscripted(tokens) or (applied and tokens[0][0] == "sym"):
        return "".join(pieces)
    return ""


def _lower(tokens: list[Token]) -> list[str]:
    return [word for _, piece in tokens for word in piece.lower().split()]


def is_named(tokens: list[Token]) -> bool:
    """Whether tokens are the name of a value."""
    return bool(tokens) and bool(_name(tokens))


def _quantity(tokens: list[Token]) -> str:
    r"""The text of ``f(2)``, ``f^{-1}(x)``, or of what capital letters measure: ``\angle ABC``."""
    text = "".join(piece for _, piece in tokens)
    if len(tokens) > 1 and (_APPLIED.fullmatch(text) or _MEASURED.fullmatch(text)):
        return text
    return ""


def _is_subscripted(tokens: list[Token]) -> bool:
    pieces = [piece for _, piece in tokens]
    if len(pieces) < 3 or tokens[0][0] != "sym" or pieces[1] != "_":
        return False
    closed = pieces[2] == "{" and "}" in pieces and pieces.index("}") == len(pieces) - 1
    return len(pieces) == 3 or closed


def _tree_or_none(tokens: list[Token]) -> Tree | None:
    try:
        return parse(tokens)
    except UnreadableError:
        return None


def _single(operation: str, left: Tree, right: Tree) -> Answer:
    """One relation; ``x < 5`` is the interval below 5."""
    if operation in _FLIPPED:
        if left[0] != "sym" and right[0] == "sym":
            operation, left, right = _FLIPPED[operation], right, left
        if left[0] == "sym" and not symbols(right):
            return _half_line(operation, left[1], right)
        if left[0] == "abs" and left[1][0] == "sym" and not symbols(right):
            return _around_zero(operation, left[1][1], right)
    if operation == "\\ne" and left[0] == "sym" and not symbols(right):
        return Listed(tuple(_half_line(sign, left[1], right) for sign in "<>"))
    return Relation(operation, left, right)


def joined(items: tuple[Answer, ...], both: bool) -> Answer:
    """Several inequalities as one answer.

    Args:
        items: What is said.
        both: Whether all of it is said to hold (``and``); otherwise it is where it can.
    """
    lines = [item for item in items if isinstance(item, Sequence) and item.name]
    if len(lines) < len(items) or len({line.name for line in lines}) != 1:
        return Listed(items)
    try:
        low, opener = max((_end(line, 0, line.opener == "(") for line in lines), key=_inner)
        high, closer = min((_end(line, 1, line.closer != ")") for line in lines), key=_inner)
    except (NoValueError, ValueError):
        return Listed(items)
    common = Sequence(
        "(" if opener else "[", (low[1], high[1]), "]" if closer else ")", lines[0].name
    )
    empty = low[0] > high[0] or (low[0] == high[0] and (opener or not closer))
    bounded = not (_infinite(common.items[0]) or _infinite(common.items[1]))
    if both:
        return Listed((), braces=True) if empty else common
    return common if bounded and not empty else Listed(items)


def _end(line: Sequence, at: int, second: bool) -> tuple[tuple[float, Answer], bool]:
    """The value of an end of an interval, for comparison, with its text and its bracket."""
    end = line.items[at]
    if not isinstance(end, Expression):
        raise ValueError("no number")
    if contains(end.tree, "inf"):
        return (float("inf") if at else float("-inf"), end), second
    return (float(real(evaluate(end.tree, {}, end.sign)) or 0), end), second


def _inner(end: tuple[tuple[float, Answer], bool]) -> tuple[float, bool]:
    return end[0][0], end[1]


def _around_zero(operation: str, name: str, bound: Tree) -> Answer:
    """Solve ``|x| < a`` or ``|x| > a`` for x."""
    minus = ("mul", ("num", Fraction(-1)), bound)
    if operation in ("<", "\\le"):
        opener, closer = ("(", ")") if operation == "<" else ("[", "]")
        return Sequence(opener, (Expression(minus), Expression(bound)), closer, name)
    below = _half_line(_FLIPPED[operation], name, minus)
    return Listed((below, _half_line(operation, name, bound)))


def _half_line(operation: str, name: str, bound: Tree) -> Sequence:
    infinity = Expression(("inf",))
    if operation in ("<", "\\le"):
        below = Expression(("mul", ("num", Fraction(-1)), ("inf",)))
        return Sequence("(", (below, Expression(bound)), ")" if operation == "<" else "]", name)
    return Sequence("(" if operation == ">" else "[", (Expression(bound), infinity), ")", name)


def _chain(operations: list[str], trees: list[Tree]) -> Answer:
    """``a < x <= b`` is an interval, ``3 + 4 = 7`` a chain of constants."""
    if all(operation in ("=", "\\approx") for operation in operations):
        first, values = trees[0], tuple(map(Expression, trees))
        exact = "\\approx" not in operations
        if first[0] == "sym":
            rest = values[1:]
            return Named(first[1], Chain(rest, exact) if len(rest) > 1 else rest[0], first)
        return Chain(values, exact)
    if len(trees) != 3 or trees[1][0] != "sym":
        if any(operation not in _FLIPPED for operation in operations):
            raise UnreadableError("a chain of relations")
        steps = zip(operations, trees, trees[1:], strict=False)
        return Listed(tuple(Relation(*step) for step in steps))
    if all(operation in (">", "\\ge") for operation in operations):
        operations = [_FLIPPED[operation] for operation in reversed(operations)]
        trees = trees[::-1]
    if not all(operation in ("<", "\\le") for operation in operations):
        raise UnreadableError("a chain of relations")
    opener = "(" if operations[0] == "<" else "["
    closer = ")" if operations[1] == "<" else "]"
    ends = (Expression(trees[0]), Expression(trees[2]))
    return interval(opener, ends, closer, trees[1][1])
