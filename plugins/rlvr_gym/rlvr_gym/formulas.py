"""What a model's formula is worth: read by Python's grammar, computed here, never evaluated.

reasoning-gym gives formulas to sympy's ``parse_expr``, which runs any Python, and whose
simplification of a hostile formula does not end. Here each node of the tree is one that is known,
and the work is linear in its length.
"""

from __future__ import annotations

import ast
import cmath
import math
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction

LONGEST = 400
"""Characters of a formula, or twice those of the right answer, whichever is more."""
HIGHEST_POWER = 99

Monomials = Mapping[tuple[tuple[str, int], ...], int]
_Function = Callable[[complex], complex]
_FUNCTIONS: Mapping[str, tuple[_Function, _Function]] = {
    "sin": (cmath.sin, cmath.cos),
    "cos": (cmath.cos, lambda x: -cmath.sin(x)),
    "tan": (cmath.tan, lambda x: 1 / cmath.cos(x) ** 2),
    "sinh": (cmath.sinh, cmath.cosh),
    "cosh": (cmath.cosh, cmath.sinh),
    "tanh": (cmath.tanh, lambda x: 1 / cmath.cosh(x) ** 2),
    "asin": (cmath.asin, lambda x: 1 / cmath.sqrt(1 - x * x)),
    "acos": (cmath.acos, lambda x: -1 / cmath.sqrt(1 - x * x)),
    "atan": (cmath.atan, lambda x: 1 / (1 + x * x)),
    "exp": (cmath.exp, cmath.exp),
    "log": (cmath.log, lambda x: 1 / x),
    "ln": (cmath.log, lambda x: 1 / x),
    "sqrt": (cmath.sqrt, lambda x: 0.5 / cmath.sqrt(x)),
}
"""Functions of one argument, each with its derivative."""
_CONSTANTS: Mapping[str, complex] = {"E": math.e, "pi": math.pi}
_POINTS = (0.71 + 0.13j, 0.37 - 0.29j, 1.19 + 0.07j, -0.53 + 0.41j, 1.61 - 0.19j)
"""Where derivatives are compared: off the axes, since roots and logarithms turn there."""
_NEAR = 1e-9


class NotAFormulaError(ValueError):
    """The text is no formula of the kind that is asked for."""


def parse(text: str, longest: int = LONGEST) -> ast.expr:
    """Read a formula.

    Raises:
        NotAFormulaError: If it is not a formula, or too long to be an answer.
    """
    if len(text) > longest or not text.isascii():
        raise NotAFormulaError("not a formula")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise NotAFormulaError("not a formula") from error


def value(node: ast.expr, used: Counter[int]) -> Fraction:
    """Compute a formula of whole numbers and ``+ - * /``, and count the numbers in it.

    Raises:
        NotAFormulaError: If there is anything else in it, or a division by 0.
    """
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            used[number] += 1
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -value(inner, used)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = value(left, used), value(right, used)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.Div() if b:
                    return a / b
    raise NotAFormulaError("not a formula of whole numbers and + - * /")


def polynomial(node: ast.expr) -> Monomials:
    """Return a sum of monomials as coefficients by powers; products of sums are none.

    Raises:
        NotAFormulaError: If it is anything else.
    """
    total: Counter[tuple[tuple[str, int], ...]] = Counter()
    _add_terms(node, 1, total)
    return {powers: n for powers, n in total.items() if n}


def _add_terms(node: ast.expr, sign: int, total: Counter[tuple[tuple[str, int], ...]]) -> None:
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            _add_terms(left, sign, total)
            _add_terms(right, -sign if isinstance(op, ast.Sub) else sign, total)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=inner):
            _add_terms(inner, -sign if isinstance(op, ast.USub) else sign, total)
        case _:
            powers: Counter[str] = Counter()
            coefficient = _factor(node, powers)
            total[tuple(sorted(powers.items()))] += sign * coefficient


def _factor(node: ast.expr, powers: Counter[str]) -> int:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name) if len(name) == 1:
            powers[name] += 1
            return 1
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_factor(inner, powers)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _factor(left, powers) * _factor(right, powers)
        case ast.BinOp(
            left=ast.Name(id=name), op=ast.Pow(), right=ast.Constant(value=int(power))
        ) if len(name) == 1 and 0 <= power <= HIGHEST_POWER:
            if power:
                powers[name] += power
            return 1
    raise NotAFormulaError("not a sum of monomials")


def same_derivative(first: ast.expr, second: ast.expr, variable: str) -> bool:
    """Whether two functions have the same derivative, by its values in the complex plane.

    Other letters than the variable are constants.

    Raises:
        NotAFormulaError: If either is not made of numbers, letters, known functions and
            ``+ - * / **``, or has no value at most points.
    """
    compared = 0
    for point in _POINTS:
        try:
            slope, other = (_dual(node, variable, point)[1] for node in (first, second))
        except (ArithmeticError, ValueError) as error:
            if isinstance(error, NotAFormulaError):
                raise
            continue
        compared += 1
        if not abs(slope - other) <= _NEAR * max(1.0, abs(slope), abs(other)):
            return False
    if compared <= len(_POINTS) // 2:
        raise NotAFormulaError("it has no value")
    return True


def _dual(node: ast.expr, variable: str, x: complex) -> tuple[complex, complex]:
    """Return the value and the derivative of a formula at a point."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return complex(number), 0j
        case ast.Name(id=name):
            if name == variable:
                return x, 1 + 0j
            if name in _CONSTANTS:
                return _CONSTANTS[name], 0j
            if len(name) == 1:
                return complex(ord(name) / 97), 0j  # any constant
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=inner):
            sign = -1 if isinstance(op, ast.USub) else 1
            u, du = _dual(inner, variable, x)
            return sign * u, sign * du
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in _FUNCTIONS:
            function, derivative = _FUNCTIONS[name]
            u, du = _dual(inner, variable, x)
            return function(u), derivative(u) * du
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(op, _dual(left, variable, x), _dual(right, variable, x))
    raise NotAFormulaError("not a formula")


def _combined(
    op: ast.operator, left: tuple[complex, complex], right: tuple[complex, complex]
) -> tuple[complex, complex]:
    (u, du), (v, dv) = left, right
    match op:
        case ast.Add():
            return u + v, du + dv
        case ast.Sub():
            return u - v, du - dv
        case ast.Mult():
            return u * v, u * dv + v * du
        case ast.Div():
            return u / v, (du * v - u * dv) / (v * v)
        case ast.Pow():
            power = u**v
            slope = v * u ** (v - 1) * du if u else 0j
            return power, slope + (power * cmath.log(u) * dv if dv else 0j)
    raise NotAFormulaError("not a formula")
