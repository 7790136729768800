"""The forms of final answers."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr_math.latex import Tree


@dataclass(frozen=True, slots=True)
class Expression:
    r"""One expression.

    Attributes:
        tree: The expression without its unit.
        sign: What its ``\pm`` stands for.
        unit: Words after it, singular, or its base; "" if there are none.
    """

    tree: Tree
    sign: int = 1
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """Text, lower-case and without punctuation."""

    text: str


@dataclass(frozen=True, slots=True)
class Listed:
    """Several answers whose order does not matter; ``braces`` if written as a set."""

    items: tuple[Answer, ...]
    braces: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    """A tuple, vector or interval: ordered, with the brackets it was written with.

    Angle brackets count as round ones. An inequality ``a < x <= b`` is one too, with ``name`` x.
    """

    opener: str
    items: tuple[Answer, ...]
    closer: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix, row by row; ``bars`` for a determinant or norm."""

    rows: tuple[tuple[Answer, ...], ...]
    bars: bool


@dataclass(frozen=True, slots=True)
class Named:
    """A value with the variable or function it belongs to: ``x = 5``, ``f(x) = x + 1``."""

    name: str
    value: Answer
    tree: Tree | None


@dataclass(frozen=True, slots=True)
class Relation:
    """An equation or inequality between expressions."""

    operation: str
    left: Tree
    right: Tree


@dataclass(frozen=True, slots=True)
class Chain:
    r"""Expressions said to be equal, as in ``3 + 4 = 7``.

    Attributes:
        values: The expressions, in order.
        exact: Whether none is said to be so by ``\approx`` only.
        percents: Whether each is a percentage; empty if none is.
    """

    values: tuple[Expression, ...]
    exact: bool
    percents: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Ratio:
    """``2:3``; ``clock`` if it may be a time of day, which is not cancelled down."""

    parts: tuple[Tree, ...]
    clock: bool = False


Answer = Expression | Words | Listed | Sequence | Matrix | Named | Relation | Chain | Ratio
