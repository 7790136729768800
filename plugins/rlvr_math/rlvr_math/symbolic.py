"""The rules that compare answers by their structure and value."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Series
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from rlvr_math import values
from rlvr_math.forms import (
    Answer,
    Chain,
    Expression,
    Listed,
    Matrix,
    Named,
    Ratio,
    Relation,
    Sequence,
    Words,
)
from rlvr_math.latex import Tree
from rlvr_math.structure import PERCENT, read
from rlvr_math.tokens import UnreadableError
from rlvr_math.units import factor
from rlvr_math.values import NoValueError, evaluate

Order = Literal["as-written", "any", "strict"]
MAX_PAIRED = 24
"""Longer unordered lists must come in the same order."""
_ABOUT = 0.05
"""How far apart what is said to be about equal may be."""
_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """How strictly answers are compared.

    Attributes:
        order: ``as-written`` keeps the order in brackets only, ``strict`` in every list,
            ``any`` in none.
        tolerance: Relative, for constants one of which is written as a decimal; 0 is exact.
    """

    order: Order = "as-written"
    tolerance: float = 0.0

    def same(self, left: Answer, right: Answer) -> bool:
        """Whether two answers have the same meaning."""
        if isinstance(left, Named) or isinstance(right, Named):
            return self._same_named(left, right)
        if isinstance(left, Chain) or isinstance(right, Chain):
            return self._same_chain(left, right)
        match left, right:
            case Expression(), Expression():
                return self._same_value(left, right)
            case Words(one), Words(other):
                return one == other and one != ""
            case (Words(one), Expression(("sym", name))) | (Expression(("sym", name)), Words(one)):
                return bool(one == name.casefold())
            case Listed(), Listed():
                items = _distinct(self, left), _distinct(self, right)
                return self._same_items(*items, self.order != "strict")
            case Sequence(), Sequence():
                return self._same_sequence(left, right)
            case Matrix(), Matrix():
                return self._same_matrix(left, right)
            case Relation(), Relation():
                return _same_relation(left, right)
            case Ratio(), Ratio():
                return self._same_ratio(left, right)
        return self._same_otherwise(left, right) or self._same_otherwise(right, left)

    def _same_ratio(self, left: Ratio, right: Ratio) -> bool:
        """Whether the parts are proportional; those of a time must be the same."""
        if len(left.parts) != len(right.parts):
            return False
        times = ("pow", right.parts[0], ("num", Fraction(-1)))
        scale = ("num", Fraction(1)) if left.clock else ("mul", left.parts[0], times)
        return all(
            self._same_value(Expression(first), Expression(("mul", scale, other)))
            for first, other in zip(left.parts, right.parts, strict=True)
        )

    def _same_otherwise(self, left: Answer, right: Answer) -> bool:
        """Answers of two kinds that may say the same."""
        match left, right:
            case Sequence(), Relation():
                bound = _bound(left)
                return bound is not None and _same_relation(bound, right)
            case Listed(), Sequence() if named := _coordinates(left):
                return right.opener == "(" and self._same_items(named, right.items, False)
            case Matrix(rows, bars=False), Sequence(items=items) if _is_vector(rows, right):
                cells = tuple(cell for row in rows for cell in row)
                return self._same_items(cells, items, False)
            case Ratio((top, bottom), clock=False), Expression():
                over = ("mul", top, ("pow", bottom, ("num", Fraction(-1))))
                return not right.unit and self._same_value(Expression(over), right)
            case Listed([one]), _:  # a set of one element may stand without its braces
                return self.same(one, right)
        return False

    def _same_chain(self, left: Answer, right: Answer) -> bool:
        """Both say the same of each step, or the chain holds and ends in the other answer."""
        match left, right:
            case Chain(), Chain() if len(left.values) == len(right.values):
                return self._same_items(left.values, right.values, False)
            case Chain(), Chain():
                return self._holds(left) and self._same_chain(left.values[-1], right)
            case Chain(), _:
                return any(self.same(end, right) for end in self.ends(left))
        return self._same_chain(right, left)

    def ends(self, chain: Chain) -> tuple[Expression, ...]:
        """Which of its expressions a chain gives for the answer: its last one, mostly.

        The first one too if that is the same number, so that no chain can give two answers.
        """
        first, last = chain.values[0], chain.values[-1]
        if self._holds(chain):
            return (last, first) if not _variables(first.tree) else (last,)
        about = not chain.exact and self._holds(chain, _ABOUT)
        return (last,) if about else ()

    def _holds(self, chain: Chain, tolerance: float = 0.0) -> bool:
        """Whether all constants of a chain are the same: 56% as 0.56, 2/3 about as 0.67."""
        percents = chain.percents or (False,) * len(chain.values)
        try:
            steps = [
                (evaluate(value.tree, {}, value.sign), percent or _decimal(value.tree), percent)
                for value, percent in zip(chain.values, percents, strict=True)
                if not _variables(value.tree)
            ]
        except (NoValueError, OverflowError, ValueError):
            return False
        return all(self._same_step(step, steps[-1], chain.exact, tolerance) for step in steps)

    def _same_step(self, step: _Step, last: _Step, exact: bool, tolerance: float) -> bool:
        if values.same(step[0], last[0], max(self.tolerance, tolerance)):
            return True
        if step[2] != last[2]:
            step, last = _plain(step), _plain(last)
            if values.same(step[0], last[0], tolerance):
                return True
        return not exact and (_rounded(last, step) or _rounded(step, last))

    def _same_named(self, left: Answer, right: Answer) -> bool:
        if not isinstance(left, Named):
            left, right = right, left
        if not isinstance(left, Named):
            return False
        if not isinstance(right, Named):
            if isinstance(right, Relation):
                equation = _equation(left)
                return equation is not None and _same_relation(equation, right)
            if isinstance(right, Sequence) and right.name and right.name != left.name:
                return False
            return self.same(left.value, right)
        if left.name == right.name:
            return self.same(left.value, right.value)
        first, other = _equation(left), _equation(right)
        return first is not None and other is not None and _same_relation(first, other)

    def _same_items(self, left: Series[Answer], right: Series[Answer], any_order: bool) -> bool:
        if len(left) != len(right):
            return False
        if sum(map(_is_set, left)) != sum(map(_is_set, right)):
            return False  # a set is not its element where it stands among others
        if all(self.same(first, other) for first, other in zip(left, right, strict=True)):
            return True
        if not any_order or len(left) > MAX_PAIRED:
            return False
        rest = list(right)
        for item in left:
            place = next((at for at, other in enumerate(rest) if self.same(item, other)), None)
            if place is None:
                return False
            del rest[place]
        return True

    def _same_sequence(self, left: Sequence, right: Sequence) -> bool:
        brackets = (left.opener, left.closer) == (right.opener, right.closer)
        named = left.name and right.name and left.name != right.name
        return (
            brackets
            and not named
            and self._same_items(left.items, right.items, self.order == "any")
        )

    def _same_matrix(self, left: Matrix, right: Matrix) -> bool:
        return (
            left.bars == right.bars
            and len(left.rows) == len(right.rows)
            and all(
                self._same_items(row, other, False)
                for row, other in zip(left.rows, right.rows, strict=True)
            )
        )

    def _same_value(self, left: Expression, right: Expression) -> bool:
        if left.unit and right.unit and left.unit != right.unit:
            return self._same_measure(left, right)
        if "degree" in (left.unit, right.unit) and left.unit != right.unit:
            first, other = (left, right) if left.unit else (right, left)
            if values.contains(other.tree, "pi"):  # it is said in radians
                return self._same_measure(first, replace(other, unit="rad"))
        if right.unit == "%" and not left.unit and _is_below_one(left.tree):
            return False  # 0.25 is not 0.25%
        if left.tree == right.tree and left.sign == right.sign:
            return True
        names, others = _variables(left.tree), _variables(right.tree)
        if names - others == {"C"} and others - names in ({"c"}, {"K"}, {"k"}):
            (constant,) = others - names  # of integration
            right = replace(right, tree=_renamed(right.tree, constant, "C"))
        names |= _variables(right.tree)
        tolerance = self.tolerance
        if tolerance and not (_decimal(left.tree) or _decimal(right.tree)):
            tolerance = 0.0
        agreed = 0
        for point in _points(left.tree, right.tree, names):
            try:
                first = evaluate(left.tree, point, left.sign)
                other = evaluate(right.tree, point, right.sign)
                if not values.same(first, other, tolerance):
                    return False
                if not names and values.tiny(first, other):
                    signs = left.sign, right.sign
                    return values.same_tiny(left.tree, right.tree, *signs, tolerance)
            except (NoValueError, OverflowError, ValueError):
                continue
            agreed += 1
        return agreed >= (2 if names else 1)

    def _same_measure(self, left: Expression, right: Expression) -> bool:
        """Whether two values in different units are the same."""
        angles = {left.unit, right.unit} == {"degree", "rad"}
        times = Fraction(1) if angles else factor(right.unit, left.unit)
        if times is None:
            return False
        trees = [
            ("mul", side.tree, ("pi",), ("num", Fraction(1, 180)))
            if angles and side.unit == "degree"
            else side.tree
            for side in (left, right)
        ]
        scaled = trees[1] if times == 1 else ("mul", trees[1], ("num", times))
        first, other = Expression(trees[0], left.sign), Expression(scaled, right.sign)
        return self._same_value(first, other)


def _is_below_one(tree: Tree) -> bool:
    try:
        value = evaluate(tree, {})
    except (NoValueError, OverflowError, ValueError):
        return False
    return isinstance(value, Fraction) and 0 < abs(value) < 1


_Step = tuple[values.Value, bool, bool]
"""The value of a step of a chain, whether it is a decimal, and whether a percentage."""


def _rounded(step: _Step, near: _Step) -> bool:
    whole = isinstance(near[0], Fraction) and near[0].denominator == 1
    return (near[1] or whole) and values.rounds_to(step[0], near[0])


def _plain(step: _Step) -> _Step:
    """A percentage as what it is of one."""
    value, decimal, percent = step
    return (values.divide(value, Fraction(100)) if percent else value), decimal, False


def _points(left: Tree, right: Tree, names: set[str]) -> list[dict[str, Fraction]]:
    if not names:
        return [{}]
    whole = any(
        values.contains(tree, kind) for tree in (left, right) for kind in ("factorial", "binom")
    )
    return (values.whole_points if whole else values.points)(sorted(names))


def _is_vector(rows: tuple[tuple[Answer, ...], ...], line: Sequence) -> bool:
    """Whether a matrix is one row or column, and the other may be a tuple rather than a range."""
    single = len(rows) == 1 or all(len(row) == 1 for row in rows)
    return single and not line.name and (line.opener == "(" or len(line.items) > 2)


def _is_set(answer: Answer) -> bool:
    return isinstance(answer, Listed)


def _distinct(comparison: Comparison, listed: Listed) -> tuple[Answer, ...]:
    """The items; of a set that was written with braces each one once."""
    if not listed.braces or len(listed.items) > MAX_PAIRED:
        return listed.items
    distinct: list[Answer] = []
    for item in listed.items:
        if not any(comparison.same(item, other) for other in distinct):
            distinct.append(item)
    return tuple(distinct)


def _coordinates(listed: Listed) -> tuple[Answer, ...] | None:
    """The values of ``x = 1, y = 2`` in the order of the names."""
    named = [item for item in listed.items if isinstance(item, Named)]
    names = {item.name for item in named}
    if len(names) != len(listed.items) or len(names) < 2 or not all(map(str.isalpha, names)):
        return None
    return tuple(item.value for item in sorted(named, key=lambda item: item.name))


def _bound(line: Sequence) -> Relation | None:
    """The inequality that a half-line was written as."""
    low, high = line.items if len(line.items) == 2 else (None, None)
    if not line.name or not isinstance(low, Expression) or not isinstance(high, Expression):
        return None
    variable = ("sym", line.name)
    if values.contains(high.tree, "inf"):
        return Relation(">" if line.opener == "(" else "\\ge", variable, low.tree)
    if values.contains(low.tree, "inf"):
        return Relation("<" if line.closer == ")" else "\\le", variable, high.tree)
    return None


def _renamed(tree: Tree, old: str, new: str) -> Tree:
    if tree == ("sym", old):
        return ("sym", new)
    return tuple(_renamed(part, old, new) if isinstance(part, tuple) else part for part in tree)


def _variables(tree: Tree) -> set[str]:
    return values.symbols(tree) - {"e", "i"}


def _decimal(tree: Tree) -> bool:
    """Whether a number in it was written with a decimal point, as far as its value tells."""
    if tree[0] == "num":
        return bool(tree[1].denominator != 1)
    if tree[0] == "pow" and tree[2] == ("num", Fraction(-1)):
        return False
    return any(_decimal(part) for part in tree[1:] if isinstance(part, tuple))


def _equation(named: Named) -> Relation | None:
    if named.tree is None or not isinstance(named.value, Expression):
        return None
    return Relation("=", named.tree, named.value.tree)


def _same_relation(left: Relation, right: Relation) -> bool:
    """Whether the differences of the sides are proportional, with the fitting sign."""
    left, right = _upward(left), _upward(right)
    if left.operation != right.operation:
        return False
    names = set().union(
        *(_variables(tree) for tree in (left.left, left.right, right.left, right.right))
    )
    ratio: values.Value | None = None
    agreed = 0
    for point in values.points(sorted(names)):
        try:
            first = values.subtract(evaluate(left.left, point), evaluate(left.right, point))
            other = values.subtract(evaluate(right.left, point), evaluate(right.right, point))
            if values.is_zero(first) or values.is_zero(other):
                return False
            if values.infinite(first) or values.infinite(other):
                return False  # the ratio would be the same everywhere, whatever the other says
            quotient = values.divide(first, other)
            if ratio is None:
                ratio = quotient
            if not values.same(quotient, ratio):
                return False
        except (NoValueError, OverflowError, ValueError, ZeroDivisionError):
            continue
        agreed += 1
    if agreed < 2 or ratio is None:
        return False
    sign = values.real(ratio)
    return left.operation in ("=", "\\ne", "\\approx") or (sign is not None and sign > 0)


def _upward(relation: Relation) -> Relation:
    if relation.operation in (">", "\\ge"):
        return Relation(_FLIPPED[relation.operation], relation.right, relation.left)
    return relation


@lru_cache(maxsize=4096)
def _structure(text: str) -> Answer | None:
    try:
        return read(text)
    except UnreadableError:
        return None


def structure(text: str) -> Answer | None:
    """The structure of an answer as written; None where it has none that is understood."""
    return _structure(text) if len(text) <= 2 * 2000 else None


def same_meaning(gold: str, answer: str, comparison: Comparison) -> bool | None:
    """Whether two answers mean the same; None where one of them is not understood."""
    left, right = structure(gold), structure(answer)
    if left is None or right is None:
        return None
    return comparison.same(left, _value_of_sum(left, right))


def _value_of_sum(gold: Answer, answer: Answer) -> Answer:
    """The constant that ``m + n = 113`` ends in, where the reference is a constant alone."""
    match gold, answer:
        case Expression(), Relation("=", left, right):
            constant = not values.symbols(gold.tree) and not values.symbols(right)
            if constant and values.symbols(left) and not values.contains(left, "num"):
                return Expression(right)
    return answer


def as_percent(gold: str, answer: str, same: Callable[[str, str], bool]) -> bool:
    r"""Whether one answer is a percentage and the other the same as a fraction of one."""
    if bool(PERCENT.search(gold)) == bool(PERCENT.search(answer)):
        return False
    percent, plain = (gold, answer) if PERCENT.search(gold) else (answer, gold)
    bare = PERCENT.sub("", percent.replace("\\%", "%"))
    return same(f"\\frac{{{bare}}}{{100}}", plain)
