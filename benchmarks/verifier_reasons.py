"""Why verdicts differ, judged by hand: each class of rows, who is right, and the reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from verifier_rows import Row

from rlvr_math.boxes import boxes


@dataclass(frozen=True, slots=True)
class Class:
    """Rows that differ for one reason.

    Attributes:
        name: What they have in common.
        right: Whose verdict is right.
        why: Why, in a sentence.
        holds: Whether a row is one of them.
    """

    name: str
    right: str
    why: str
    holds: Callable[[Row], bool]


def _gold(pattern: str) -> Callable[[Row], bool]:
    found = re.compile(pattern)
    return lambda row: bool(found.search(row.gold))


def _ids(*endings: str) -> Callable[[Row], bool]:
    return lambda row: row.id.endswith(endings)


FORMS = {
    "gsm8k-strict": "\n#### %s",
    "minerva": "\nFinal Answer: The final answer is $%s$. I hope it is correct.",
}
EMPTY = """\
Two solutions of MATH end in an empty box. As responses they give no final answer, so they fail,
which is right; the reference, 0, is supplied by the loader from what their text says.
"""

OURS = (
    Class("empty box", "ours", "its box is empty", lambda row: "\\boxed{}" in row.response),
    Class(
        "within the tolerance",
        "ours",
        "differs by less than the preset's tolerance of 1e-4",
        _gold(r"\d\d\.\d"),
    ),
)

THEIRS = (
    Class(
        "Several boxes, any one of which will do",
        "ours",
        "The problem asks for one focus or vertex of two and the solution boxes both; the last is "
        "the reference. math-verify takes all boxes together for one set, which the reference is "
        "not.",
        _ids("ae287fa11863", "a7cf9617c20c", "29421c88ce2a"),
    ),
    Class(
        "One answer boxed in two notations",
        "ours",
        "20:34 and 8:34 p.m. are the same answer; math-verify makes a set of two of them.",
        _ids("dc078797f4f3"),
    ),
    Class(
        "Several boxes, all of which are asked for",
        "neither; the reference is at fault",
        "The problem asks for every value and the solution boxes each of them, but MATH's "
        "reference is its last box alone, so half an answer. math-verify, which reads all boxes, "
        "rejects a complete solution. Ours, which reads the last, accepts it, but for the wrong "
        r"reason: it also accepts the half, and rejects both values in one box (`2x+1, -2x-1`). "
        "The references are left as MATH has them; leave these ids out where it matters.",
        lambda row: row.expected and len(list(boxes(row.response))) > 1,
    ),
    Class(
        "A minus in front of a tuple of fractions",
        "ours",
        "math-verify reads the fractions inside the brackets as a set and loses the minus, so that "
        "the negated tuple passes.",
        lambda row: row.id.endswith("/sign") and row.gold.startswith("\\left("),
    ),
    Class(
        "Numerals with a base",
        "ours",
        "math-verify drops the base, so that `1_7` and `1_9` are both 1 to it. A base that is left "
        "out is accepted by both.",
        _gold(r"^[\d.]+_\{?\d+\}?$"),
    ),
    Class(
        "Very small numbers",
        "ours",
        "math-verify evaluates the difference to 15 digits and chops small ones to zero, so "
        "that all numbers this small are equal.",
        _gold(r"\\frac\{1\}\{(?:2\^\{98\}|2004!)\}"),
    ),
    Class(
        r"`\frac\pi 2`",
        "ours",
        r"math-verify does not read `\frac\pi 2`, which TeX takes without braces, and is left with "
        "the number 2 of all of these.",
        _gold(r"\\frac ?\\pi"),
    ),
    Class(
        "Powers of units",
        "ours",
        "math-verify takes units off with their exponents; an area is no volume. A unit that is "
        "left out is accepted by both.",
        _gold(r"\^2$"),
    ),
    Class(
        r"A full stop inside the box, or `\phantom`",
        "ours",
        "math-verify does not read the whole and is left with a last number, -1 of a matrix or "
        "1/5 of a complex number, which the change does not touch.",
        _gold(r"\.$|\\phantom"),
    ),
    Class(
        r"`\approx`",
        "ours",
        r"math-verify keeps what stands on one side of `\approx`, so a change on the other goes "
        "unseen, as does a minus in front of it.",
        _gold(r"\\approx"),
    ),
    Class(
        "An equation between constants",
        "ours",
        r"math-verify solves `0.56 = 56\%` and `0.26 = 56\%`; neither has an unknown, so neither "
        "has solutions, and no solutions are equal to no solutions.",
        _gold("="),
    ),
)
