"""Refuses answers that no generator may see, and limits ``eval`` in those that call it on them."""

from __future__ import annotations

import ast
import importlib
import re

EVALUATING = {
    "binary_matrix": "reasoning_gym.algorithmic.binary_matrix",
    "n_queens": "reasoning_gym.games.n_queens",
    "spiral_matrix": "reasoning_gym.algorithmic.spiral_matrix",
    "string_insertion": "reasoning_gym.algorithmic.string_insertion",
}
"""Generators whose scoring calls ``eval`` on an answer, and their modules."""
LONGEST = 2000
"""Characters that an answer may have besides four times those of the reference."""

_HUGE = re.compile(r"[0-9.][eE][-+]?[0-9]{4}")
_HEX = re.compile(r"[-+]?0[xX][0-9a-fA-F]+")
_NOT_FINITE = re.compile(r"(?i)(?<![a-z])s?(?:nan|inf(?:inity)?)(?![a-hk-z])")
_DIGIT = re.compile(r"[0-9]")


def make_safe(task: str) -> None:
    """Let ``eval`` read literals alone in the module of a generator that calls it on answers."""
    if task in EVALUATING:
        vars(importlib.import_module(EVALUATING[task]))["eval"] = ast.literal_eval


def refusal(answer: str, reference: str) -> str:
    """Return why no generator must see an answer; empty if it may.

    Numbers that are none pass comparisons by distance, powers of ten without end are computed, and
    the time that scoring takes grows with the answer.
    """
    if len(answer) > 4 * len(reference) + LONGEST:
        return "far longer than the right answer"
    if _HUGE.search(answer) and not _HEX.fullmatch(answer.strip()):  # 0xb0e42758 has no exponent
        return "a power of ten beyond any answer"
    if _DIGIT.search(reference) and _NOT_FINITE.search(answer):
        return "not a finite number"
    return ""
