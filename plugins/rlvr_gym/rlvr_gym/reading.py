"""Answers that a generator may be shown: some of them evaluate what the model wrote.

``eval`` and sympy's ``parse_expr`` run any Python. What they are given here is a number, a list or
a formula, or nothing.
"""

from __future__ import annotations

import re

LITERALS = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""Generators that call ``eval`` on an answer."""
FORMULAS = frozenset(
    {
        "countdown",
        "intermediate_integration",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
    }
)
"""Generators that call sympy's ``parse_expr`` on an answer."""
LONGEST_FORMULA = 400

_LITERAL = re.compile(r"[\w\s,\[\]'\"-]*")
_FORMULA = re.compile(r"(?:\d+(?:\.\d+)?|[A-Za-z]+|[-+*/^()\s])*")
_WORD = re.compile(r"[A-Za-z]+")
_FUNCTIONS = frozenset(
    {
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "exp",
        "log",
        "ln",
        "sqrt",
        "asin",
        "acos",
        "atan",
    }
)
_TOWER = re.compile(r"(?:\*\*|\^)\s*\(?[^-+/]*(?:\*\*|\^)|(?:\*\*|\^)\s*\(?\s*\d{3,}")


def refusal(task: str, answer: str) -> str:
    """Return why a generator must not see an answer; empty if it may."""
    if task in LITERALS and (not _LITERAL.fullmatch(answer) or "__" in answer):
        return "neither text nor a list of numbers or words"
    if task in FORMULAS:
        words = _WORD.findall(answer)
        known = all(len(word) == 1 or word in _FUNCTIONS for word in words)
        if len(answer) > LONGEST_FORMULA or not known or not _FORMULA.fullmatch(answer):
            return "not a formula"
        if _TOWER.search(answer):
            return "powers of powers"
    return ""
