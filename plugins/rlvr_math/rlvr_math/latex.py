r"""Reading the tokens of final answers into small expression trees, within fixed bounds.

A tree is nested tuples: ``("num", Fraction)``, ``("sym", "x")``, ``("inf",)``, ``("pm", sign)``
and ``(operation, *trees)``. Everything longer or deeper than the bounds is refused before any
arithmetic is done.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from rlvr_math.tokens import MAX_DEPTH, Token, UnreadableError

MAX_DIGITS = 400

Tree = tuple[Any, ...]

_CLOSER = {"(": ")", "[": "]", "{": "}", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_FUNCTIONS = "sin cos tan cot sec csc asin acos atan sinh cosh tanh ln log exp"
FUNCTIONS = {f"\\{name}" for name in _FUNCTIONS.split()}
GREEK = re.compile(
    r"\\(?:alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau"
    r"|upsilon|phi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Phi|Psi|Omega|ell|hbar)\Z"
)


def parse(tokens: list[Token]) -> Tree:
    """The expression tree of all tokens.

    Raises:
        UnreadableError: If they are not one expression.
    """
    parser = _Parser(tokens)
    tree = parser.expression()
    if parser.at < len(tokens):
        raise UnreadableError(f"unexpected {tokens[parser.at][1]!r}")
    return tree


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    @property
    def next(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    @property
    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        piece = self.next
        if not piece or (wanted and piece not in wanted):
            raise UnreadableError(f"{' or '.join(wanted) or 'more'} expected, not {piece!r}")
        self.at += 1
        return piece

    def expression(self) -> Tree:
        r"""A sum, or two of them with ``\over`` or ``\choose`` between."""
        tree = self.sum()
        if self.next in ("\\over", "\\choose"):
            piece, other = self.take(), self.sum()
            tree = _ratio(tree, other) if piece == "\\over" else ("binom", tree, other)
        return tree

    def sum(self) -> Tree:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableError("nested too deeply")
        terms = [self.product()]
        while self.next in ("+", "-", "\\pm", "\\mp"):
            terms.append(self.product())  # the sign is read as the term's own
        self.depth -= 1
        return ("add", *terms) if len(terms) > 1 else terms[0]

    def product(self) -> Tree:
        sign = self.signs()
        factors = [self.power()]
        while True:
            if self.next == "*":
                self.take()
                factors.append(self._times(self.signs(), self.power()))
            elif self.next == "/":
                self.take()
                bottom = self._times(self.signs(), self.power())
                factors.append(("pow", bottom, ("num", Fraction(-1))))
            elif self._starts_factor():
                factors.append(self._juxtaposed(factors[-1]))
            else:
                break
        tree = ("mul", *factors) if len(factors) > 1 else factors[0]
        return self._times(sign, tree)

    def signs(self) -> Tree | None:
        """A run of signs as one factor; None for plus."""
        factors: list[Tree] = []
        while self.next in ("+", "-", "\\pm", "\\mp"):
            piece = self.take()
            if piece == "-":
                factors.append(("num", Fraction(-1)))
            elif piece != "+":
                factors.append(("pm", Fraction(1 if piece == "\\pm" else -1)))
        return ("mul", *factors) if factors else None

    @staticmethod
    def _times(sign: Tree | None, tree: Tree) -> Tree:
        return ("mul", sign, tree) if sign else tree

    def _starts_factor(self) -> bool:
        piece = self.next
        if self.kind in ("num", "sym"):
            return True
        if piece in ("(", "[", "{", "\\lfloor", "\\lceil"):
            return True
        return self.kind == "cmd" and (
            piece in FUNCTIONS
            or piece in ("\\frac", "\\sqrt", "\\binom", "\\pi", "\\infty")
            or bool(GREEK.match(piece))
        )

    def _juxtaposed(self, before: Tree) -> Tree:
        r"""The next factor; ``3\frac{1}{2}`` and ``3 1/2`` are mixed numbers, so sums."""
        if self.kind == "num" and before[0] == "num":
            return self._mixed_slash(before)
        is_fraction = self.next == "\\frac"
        factor = self.power()
        if is_fraction and _is_natural(before) and _is_improper(factor):
            raise UnreadableError("neither a mixed number nor clearly a product")
        if is_fraction and _is_natural(before) and _is_proper(factor):
            # whole + part, written as the factor that whole is multiplied with
            whole = before[1]
            if whole:
                part = factor[1][1] / factor[2][1][1]
                return ("num", (whole + part) / whole)
        return factor

    def _mixed_slash(self, before: Tree) -> Tree:
        top = Fraction(self.take())
        self.take("/")
        if self.kind != "num" or not _is_natural(before) or not before[1]:
            raise UnreadableError("two numbers side by side")
        bottom = Fraction(self.take())
        if not bottom or top >= bottom:
            raise UnreadableError("not a mixed number")
        return ("num", (before[1] + top / bottom) / before[1])

    def power(self) -> Tree:
        tree = self.atom()
        while self.next in ("^", "!", "'", "\\deg"):
            piece = self.take()
            if piece == "\\deg":
                tree = ("mul", tree, ("pi",), ("num", Fraction(1, 180)))
            elif piece == "^":
                tree = ("pow", tree, self.exponent())
            elif piece == "!":
                tree = ("factorial", tree)
            else:
                raise UnreadableError("primes are not understood")
        return tree

    def exponent(self) -> Tree:
        """Read an argument; but ``2^10`` means 2 to the 10, unlike in TeX."""
        return self.atom() if self.kind == "num" else self.argument()

    def argument(self) -> Tree:
        """``{...}`` or the one digit or symbol that TeX takes without braces."""
        if self.next == "{":
            return self.group("{")
        if self.kind == "num" and len(self.next) > 1 and self.next.isdigit():
            digits = self.take()
            self.at -= 1
            self.tokens = [
                *self.tokens[: self.at],
                ("num", digits[1:]),
                *self.tokens[self.at + 1 :],
            ]
            return ("num", Fraction(digits[0]))
        if self.next == "-":
            self.take()
            return ("mul", ("num", Fraction(-1)), self.atom())
        return self.atom()

    def group(self, opener: str) -> Tree:
        self.take(opener)
        tree = self.expression()
        self.take(_CLOSER[opener])
        return tree

    def atom(self) -> Tree:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableError("nested too deeply")
        tree = self._atom()
        self.depth -= 1
        return tree

    def _atom(self) -> Tree:
        kind, piece = self.kind, self.take()
        if kind == "num":
            if len(piece) > MAX_DIGITS:
                raise UnreadableError("too many digits")
            return ("num", Fraction(piece))
        if kind == "sym":
            return ("sym", piece + self.subscript())
        if piece in _CLOSER:
            self.at -= 1
            tree = self.group(piece)
            return (
                ("floor", tree)
                if piece == "\\lfloor"
                else (("ceil", tree) if piece == "\\lceil" else tree)
            )
        if piece == "|":
            tree = self.sum()
            self.take("|")
            return ("abs", tree)
        if kind == "cmd":
            return self.command(piece)
        raise UnreadableError(f"{piece!r} is not understood")

    def command(self, piece: str) -> Tree:
        match piece:
            case "\\frac":
                return _ratio(self.argument(), self.argument())
            case "\\binom":
                return ("binom", self.argument(), self.argument())
            case "\\sqrt":
                index: Tree = ("num", Fraction(2))
                if self.next == "[":
                    index = self.group("[")
                return ("root", self.argument(), index)
            case "\\pi":
                return ("pi",)
            case "\\infty":
                return ("inf",)
        if piece in FUNCTIONS:
            return self.function(piece)
        if GREEK.match(piece):
            return ("sym", piece + self.subscript())
        raise UnreadableError(f"{piece} is not understood")

    def function(self, piece: str) -> Tree:
        base: Tree | None = None
        power: Tree | None = None
        while self.next in ("_", "^"):
            if self.take() == "_":
                base = self.argument()
            else:
                power = self.argument()
        inverse = power is not None and _whole(power) == -1
        argument = self.power()
        while self.kind in ("num", "sym") or self.next in ("\\pi", "\\frac"):
            argument = ("mul", argument, self.power())  # sin 2x is sin(2x)
        if base is not None:
            if piece != "\\log":
                raise UnreadableError("only logarithms have a base")
            tree: Tree = ("log", argument, base)
        elif inverse and piece in ("\\sin", "\\cos", "\\tan"):
            return ("fn", "a" + piece[1:], argument)
        else:
            tree = ("fn", piece[1:], argument)
        return ("pow", tree, power) if power is not None else tree

    def subscript(self) -> str:
        if self.next != "_":
            return ""
        self.take()
        if self.next != "{":
            return "_" + self.take()
        self.take("{")
        content = ""
        while self.next != "}":
            content += self.take()
        self.take("}")
        return "_" + content


def _ratio(top: Tree, bottom: Tree) -> Tree:
    return ("mul", top, ("pow", bottom, ("num", Fraction(-1))))


def _whole(tree: Tree) -> Fraction | None:
    """The value of a number, or of a product of numbers such as ``-1`` is read as."""
    if tree[0] == "num":
        value: Fraction = tree[1]
        return value
    if tree[0] != "mul":
        return None
    product = Fraction(1)
    for factor in map(_whole, tree[1:]):
        if factor is None:
            return None
        product *= factor
    return product


def _is_natural(tree: Tree) -> bool:
    return bool(tree[0] == "num" and tree[1].denominator == 1)


def _is_proper(tree: Tree) -> bool:
    r"""Whether the tree is that of ``\frac{a}{b}`` with numbers, ``a < b``."""
    return _is_ratio(tree) and bool(tree[1][1] < tree[2][1][1])


def _is_improper(tree: Tree) -> bool:
    return _is_ratio(tree) and bool(tree[1][1] >= tree[2][1][1])


def _is_ratio(tree: Tree) -> bool:
    if tree[0] != "mul" or len(tree) != 3 or tree[2][0] != "pow":
        return False
    return _is_natural(tree[1]) and _is_natural(tree[2][1])
