r"""The last rule: sympy, for sets and functions that ``rlvr_math.structure`` does not read.

Sympy can take forever on short input, so only text that a filter finds harmless gets there.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

from rlvr_math import symbolic, values

MAX_CHARACTERS = 160
_WORTH = re.compile(r"\\(?:cap|setminus|backslash|mathbb|gcd|max|min|bmod|overline|operatorname)\b")
_HARMFUL = re.compile(
    r"!|\d{13}|\*\*|\\(?:sum|prod|int|iint|oint|lim|[dt]?binom|choose|[nck]?[CP]r|d?frac\{d|infty\^"
    r"|partial|Gamma|zeta|exp|exponential[A-Z]*|[a-z]*sinh|[a-z]*cosh|[a-z]*tanh)(?![A-Za-z])"
    r"|(?:exp|factorial|gamma|sinh|cosh|fibonacci|prime|choose)(?![A-Za-z])"
)
_GAPS = re.compile(r"\s+|\\[ ,;:!]|\\(?:left|right|quad|qquad)(?![A-Za-z])")
_EXPONENT = re.compile(
    r"\^(?P<open>\{)?(?:[-+]?(?P<times>\d{0,2})(?P<name>[a-z])(?:[-+](?P<plus>\d{1,2}|[a-z])(?!\d))?"
    r"|[-+]?(?P<number>\d{1,2})(?!\d|\.\d)|\\circ|\\prime"
    r"|\\[dt]?frac\{?(?P<over>\d)\}?\{?\d\}?|[-+]?(?P<top>\d)/\d"
    r"|[-+*](?![-+({\\.\dA-Za-z]))(?(open)\})"
)
"""Exponents that cannot grow; ``e^{9^9}`` has another."""
_DIVIDED = re.compile(r"gcd|lcm|mod")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_MAX_POWER = 1000
"""Limit of the exponents' product: a power of a power multiplies them."""
_MAX_DEPTH = 8


def same_by_sympy(gold: str, answer: str) -> bool:
    """Whether sympy takes two answers for the same set or expression."""
    if not (_WORTH.search(gold) or _WORTH.search(answer)):
        return False
    if not (_harmless(gold) and _harmless(answer)):
        return False
    left, right = _parse(gold), _parse(answer)
    if left is None or right is None:
        return False
    return _same(left, right)


def _harmless(text: str) -> bool:
    depth = deepest = 0
    for character in text:
        depth += (character in "{([") - (character in "})]")
        deepest = max(deepest, depth)
    small = len(text) <= MAX_CHARACTERS and deepest <= _MAX_DEPTH
    if not small or _HARMFUL.search(text):
        return False
    if _DIVIDED.search(text) and re.search("[A-Za-z]", _COMMAND.sub("", _DIVIDED.sub("", text))):
        return False  # polynomials with common factors are expanded
    return _small_powers(_GAPS.sub("", text))


def _small_powers(text: str) -> bool:
    """Whether every exponent is small, and all of them together."""
    exponents = list(_EXPONENT.finditer(text))
    power = math.prod(map(_size, exponents))
    return len(exponents) == text.count("^") and power <= _MAX_POWER


def _size(exponent: re.Match[str]) -> int:
    """At least its size; ``values.points`` has no variable beyond 3."""
    number = next(
        (int(digits) for digits in exponent.group("times", "number", "over", "top") if digits), 1
    )
    plus = exponent["plus"] or "0"
    more = int(plus) if plus.isdigit() else 3
    return max(1, number) * (3 if exponent["name"] else 1) + more


def _parse(text: str) -> Any:
    from latex2sympy2_extended import latex2sympy

    try:
        return latex2sympy(text)
    except Exception:  # its parser raises whatever its callbacks do; unread is not equal
        return None


def _same(left: Any, right: Any) -> bool:
    import sympy

    if isinstance(left, sympy.Set) and isinstance(right, sympy.Set):
        if left == right:
            return True
        try:
            return bool(left.symmetric_difference(right).is_empty)
        except (TypeError, ValueError, NotImplementedError, RecursionError):
            return False
    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return bool(left == right)
    difference = left - right
    names = {str(symbol): symbol for symbol in difference.free_symbols}
    for point in values.points(sorted(names)) if names else [{}]:
        given = {names[name]: _number(value) for name, value in point.items()}
        try:
            gap = difference.subs(given).evalf(20, maxn=60)
            if not abs(complex(gap)) < 1e-12:
                return False
        except (TypeError, ValueError, ArithmeticError, RecursionError):
            return False
    return True


def _number(value: Fraction) -> Any:
    """Convert it for sympy: from an exact one, sympy would factor huge numbers to draw roots."""
    import sympy

    return sympy.Float(sympy.Rational(value.numerator, value.denominator), 60)


def unread(gold: str, answer: str) -> bool:
    """Whether one of the answers has no structure, so that sympy may be asked."""
    return symbolic.structure(gold) is None or symbolic.structure(answer) is None
