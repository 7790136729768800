"""Evaluating expression trees: exactly while values are rational, else to ``DIGITS`` digits.

No operation can be slow: magnitudes are bounded before it is carried out.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import mpmath

from rlvr_math.latex import Tree

DIGITS = 60
MANY_DIGITS = 600
"""Where ``DIGITS`` are too few to tell a number from zero."""
_AGREE = mpmath.mpf(10) ** -40
_TINY = mpmath.mpf(10) ** -20
MAX_BITS = 20_000
"""Limit of an exact result: larger ones are refused."""
MAX_LOG = 10_000
"""Largest natural logarithm of a result that is not exact."""
MAX_FACTORIAL = 500
_MOST_PLACES = 40
POINTS = 4
"""At how many values of the variables two expressions are compared."""

Value = Any
"""``Fraction`` or a real or complex number of mpmath."""

_context = mpmath.mp.clone()
_context.dps = DIGITS


class NoValueError(Exception):
    """The expression has no value at that point, or it is beyond the bounds."""


def symbols(tree: Tree) -> set[str]:
    """Names of the variables in a tree."""
    if tree[0] == "sym":
        return {tree[1]}
    return set().union(*(symbols(part) for part in tree[1:] if isinstance(part, tuple)))


def contains(tree: Tree, operation: str) -> bool:
    """Whether an operation occurs in a tree."""
    return tree[0] == operation or any(
        contains(part, operation) for part in tree[1:] if isinstance(part, tuple)
    )


def points(names: Iterable[str]) -> list[dict[str, Fraction]]:
    """Fixed values for the variables, of both signs; the same name always gets the same ones."""
    chosen: list[dict[str, Fraction]] = [{} for _ in range(POINTS)]
    for name in names:
        digest = hashlib.sha256(name.encode()).digest()
        for index, point in enumerate(chosen):
            size = Fraction(digest[2 * index] * 256 + digest[2 * index + 1] + 4099, 30011)
            negative = index and digest[16 + index] % 2
            point[name] = -size if negative else size
    if chosen and chosen[0]:
        chosen[1] = {name: -abs(value) for name, value in chosen[1].items()}
    return chosen


def whole_points(names: Iterable[str]) -> list[dict[str, Fraction]]:
    """Fixed whole numbers for the variables, where factorials and the like have values."""
    chosen: list[dict[str, Fraction]] = [{} for _ in range(2 * POINTS)]
    for name in names:
        digest = hashlib.sha256(name.encode()).digest()
        for index, point in enumerate(chosen):
            point[name] = Fraction(2 + 3 * index + digest[index] % 11)
    return chosen


def evaluate(tree: Tree, point: Mapping[str, Fraction], sign: int = 1) -> Value:
    r"""The value of a tree.

    Args:
        tree: The expression.
        point: Values of its variables; ``e`` and ``i`` are constants unless given.
        sign: What ``\pm`` stands for.

    Raises:
        NoValueError: If it has no value, or one that is too large.
    """
    try:
        return _Evaluator(point, sign).value(tree)
    except (ZeroDivisionError, OverflowError, ValueError, TypeError, ArithmeticError) as error:
        raise NoValueError(str(error)) from error


def same(left: Value, right: Value, tolerance: float = 0.0) -> bool:
    """Whether two values are equal, exactly or to a relative tolerance."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        if left == right:
            return True
        largest = max(abs(left), abs(right))
        return tolerance > 0 and abs(left - right) <= largest * Fraction(tolerance)
    a, b = _real(left), _real(right)
    if _context.isinf(a) or _context.isinf(b):
        return bool(a == b)
    largest = max(_context.mpf(1), abs(a), abs(b))
    gap = abs(a - b)
    return bool(gap <= _AGREE * largest) or (
        tolerance > 0 and bool(gap <= max(abs(a), abs(b)) * tolerance)
    )


def tiny(left: Value, right: Value) -> bool:
    """Whether both are so near to zero that rounding alone may have made them the same."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return False
    return bool(max(abs(_real(left)), abs(_real(right))) < _TINY)


def same_tiny(
    left: Tree, right: Tree, left_sign: int, right_sign: int, tolerance: float = 0.0
) -> bool:
    """Whether two constants are equal as ``same`` has it, or both zero to ``MANY_DIGITS`` digits.

    Raises:
        NoValueError: If one has no value.
    """
    with _context.workdps(MANY_DIGITS):
        first, other = evaluate(left, {}, left_sign), evaluate(right, {}, right_sign)
        a, b = _real(first), _real(other)
        largest = max(abs(a), abs(b))
        rounding = _context.mpf(10) ** (2 * DIGITS - MANY_DIGITS)
        return bool(abs(a - b) <= max(_AGREE, tolerance) * largest or largest <= rounding)


def infinite(value: Value) -> bool:
    """Whether a value is infinite."""
    return bool(_context.isinf(_real(value)))


def is_zero(value: Value) -> bool:
    """Whether a value is zero, up to rounding."""
    return same(value, Fraction(0))


def rounds_to(value: Value, decimal: Value) -> bool:
    """Whether a decimal number is the other to so many places after the point.

    That is the nearest one; from two places on, what is left when the rest is cut off, too.
    Another number of as many places is none. A whole number of three digits and more is the nearest
    one of an irrational: 100 pi is about 314, and e is not about 3.
    """
    if not isinstance(decimal, Fraction):
        return False
    if decimal.denominator == 1:
        irrational = not isinstance(value, Fraction)
        return irrational and abs(decimal) >= 100 and bool(2 * abs(value - _real(decimal)) <= 1)
    places = next((n for n in range(_MOST_PLACES) if 10**n % decimal.denominator == 0), None)
    if places is None or (isinstance(value, Fraction) and 10**places % value.denominator == 0):
        return False
    exact, near = _real(value), _real(decimal)
    gap = abs(exact - near) * 10**places
    return bool(2 * gap <= 1 or (places > 1 and gap < 1 and abs(near) < abs(exact)))


def divide(left: Value, right: Value) -> Value:
    """The quotient of two values; the right one must not be zero."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left / right
    return _real(left) / _real(right)


def subtract(left: Value, right: Value) -> Value:
    """The difference of two values."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left - right
    return _real(left) - _real(right)


def real(value: Value) -> Value | None:
    """The value where it is real, as something that compares by ``<``; else None."""
    if isinstance(value, Fraction):
        return value
    number = _context.mpmathify(value)
    if abs(number.imag) > _AGREE * max(1, abs(number)):
        return None
    return number.real


def _real(value: Value) -> Any:
    if isinstance(value, Fraction):
        return _context.mpf(value.numerator) / value.denominator
    return value


class _Evaluator:
    def __init__(self, point: Mapping[str, Fraction], sign: int) -> None:
        self.point = point
        self.sign = sign

    def value(self, tree: Tree) -> Value:
        match tree[0]:
            case "num":
                return tree[1]
            case "pm":
                return tree[1] * self.sign
            case "sym":
                return self.symbol(tree[1])
            case "pi":
                return _context.pi()
            case "inf":
                return _context.inf
            case "add":
                return self.total(tree)
            case "mul":
                return self.product(tree)
            case "pow":
                return self.power(self.value(tree[1]), self.value(tree[2]))
            case "root":
                return self.root(self.value(tree[1]), self.value(tree[2]))
            case "fn":
                return self.function(tree[1], self.value(tree[2]))
            case "log":
                return divide(
                    self.function("ln", self.value(tree[1])),
                    self.function("ln", self.value(tree[2])),
                )
        return self.discrete(tree[0], [self.value(part) for part in tree[1:]])

    def symbol(self, name: str) -> Value:
        if name in self.point:
            return self.point[name]
        if name == "e":
            return _context.e()
        if name == "i":
            return _context.mpc(0, 1)
        raise NoValueError(f"no value for {name}")

    def total(self, tree: Tree) -> Value:
        values = [self.value(part) for part in tree[1:]]
        if all(isinstance(value, Fraction) for value in values):
            return _bounded(sum(values, Fraction(0)))
        return sum((_real(value) for value in values), _context.mpf(0))

    def product(self, tree: Tree) -> Value:
        result: Value = Fraction(1)
        for part in tree[1:]:
            value = self.value(part)
            if isinstance(value, Fraction) and isinstance(result, Fraction):
                result = _bounded(result * value)
            else:
                result = _real(result) * _real(value)
        return result

    def power(self, base: Value, exponent: Value) -> Value:
        if isinstance(base, Fraction) and isinstance(exponent, Fraction):
            if exponent.denominator == 1:
                bits = max(_bits(base), 1) * abs(exponent.numerator)
                if base == 0 and exponent < 0:
                    raise NoValueError("division by zero")
                if abs(base) == 1 or base == 0:
                    return base ** (exponent.numerator % 2 or (2 if exponent > 0 else -2))
                if bits <= MAX_BITS:
                    return base**exponent.numerator
            elif base > 0 and exponent.denominator <= 64 and abs(exponent.numerator) <= 64:
                root = _exact_root(base, exponent.denominator)
                if root is not None:
                    return self.power(root, Fraction(exponent.numerator))
        a, b = _real(base), _real(exponent)
        if a == 0:
            if _context.re(b) <= 0:
                raise NoValueError("zero to a power that is not positive")
            return Fraction(0)
        if _context.isinf(a) or _context.isinf(b):
            raise NoValueError("powers of infinity")
        if abs(b) * (abs(_context.log(abs(a))) + 4) > MAX_LOG:
            raise NoValueError("too large")
        return _context.power(a, b)

    def root(self, radicand: Value, index: Value) -> Value:
        if not isinstance(index, Fraction) or index.denominator != 1 or not 2 <= index <= 64:
            return self.power(radicand, divide(Fraction(1), index))
        n = index.numerator
        plain = real(radicand)
        if n % 2 and plain is not None and not _context.isinf(_real(plain)) and plain < 0:
            return -self.root(-radicand, index)
        if isinstance(radicand, Fraction):
            exact = _exact_root(radicand, n) if radicand >= 0 else None
            if exact is not None:
                return exact
        return self.power(radicand, Fraction(1, n))

    def function(self, name: str, argument: Value) -> Value:
        number = _real(argument)
        if _context.isinf(number):
            raise NoValueError("functions of infinity")
        if name in ("ln", "log"):
            if number == 0:
                raise NoValueError("logarithm of zero")
            return Fraction(0) if argument == 1 else _context.log(number)
        if abs(number) > MAX_LOG:
            raise NoValueError("too large")
        return getattr(_context, name)(number)

    def discrete(self, name: str, values: list[Value]) -> Value:
        if name == "abs":
            return abs(values[0])
        if name in ("floor", "ceil"):
            return self.rounded(name, values[0])
        numbers = [real(value) for value in values]
        if any(not isinstance(number, Fraction) for number in numbers):
            raise NoValueError(f"{name} of what is no integer")
        whole = [int(number) for number in numbers if number is not None]
        if any(number != given for number, given in zip(whole, numbers, strict=True)):
            raise NoValueError(f"{name} of what is no integer")
        if any(not 0 <= number <= MAX_FACTORIAL for number in whole):
            raise NoValueError(f"{name} is too large")
        return Fraction(math.factorial(whole[0]) if name == "factorial" else math.comb(*whole))

    def rounded(self, name: str, value: Value) -> Value:
        number = real(value)
        if number is None or abs(number) > 10**30:
            raise NoValueError(f"{name} is too large")
        if isinstance(number, Fraction):
            return Fraction(math.floor(number) if name == "floor" else math.ceil(number))
        return Fraction(int(getattr(_context, name)(number)))


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _bounded(value: Fraction) -> Fraction:
    if _bits(value) > MAX_BITS:
        raise NoValueError("too large")
    return value


def _exact_root(value: Fraction, n: int) -> Fraction | None:
    """The n-th root of a positive fraction where it is one."""
    top, bottom = _whole_root(value.numerator, n), _whole_root(value.denominator, n)
    return Fraction(top, bottom) if top is not None and bottom is not None else None


def _whole_root(number: int, n: int) -> int | None:
    if n == 2:
        root = math.isqrt(number)
    elif number.bit_length() > 900:
        return None
    else:
        root = round(number ** (1 / n))
    return root if root**n == number else None
