"""The answer that the completions of a group agree on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rlvr_core.builtin.canaries.numbers import plain

if TYPE_CHECKING:
    from rlvr_core.api import Group, Judged, Problem

VOTES = 3
"""Minimum votes for an answer to be the choice of a group."""
LEAD = 2
"""Minimum ratio of its votes to those of the next answer."""
SHORT = 24
"""Maximum characters of an answer; longer ones can be written in too many ways to compare."""
STATED = ("gold_answer", "answer", "gold", "target", "reference", "ground_truth", "label")
"""Fields of a problem's spec that hold a reference."""
_FINAL = re.compile(
    r"####\s*(?P<hash>[^\n]+)\s*$|\\boxed\{(?P<box>[^{}]*)\}(?!.*\\boxed)", re.DOTALL
)
_SIGNED = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Agreement:
    """The choice of a group.

    Attributes:
        answer: The answer.
        votes: Completions that give it.
        of: Completions that give any answer.
    """

    answer: str
    votes: int
    of: int

    @property
    def share(self) -> float:
        """Share of the votes."""
        return self.votes / self.of


def agreement(answers: Iterable[str]) -> Agreement | None:
    """Return the agreed answer; None if none leads clearly. Empty answers do not count.

    This is the service ``core/agreement``.
    """
    votes = Counter(one for one in answers if one)
    if not votes:
        return None
    (choice, count), *others = votes.most_common(2)
    if count < VOTES or (others and count < LEAD * others[0][1]):
        return None
    return Agreement(choice, count, votes.total())


def last_number(text: str) -> str:
    """Return the last number of a text, without separators; empty if there is none."""
    found = _SIGNED.findall(text)
    return found[-1].replace(",", "") if found else ""


def single_turn(group: Group) -> bool:
    """Return whether the completions of a group are single answers, not conversations."""
    return group.problem.environment is None and all(
        member.completion.transcript is None for member in group.members
    )


def answers_of(group: Group, *, tells: bool) -> list[str]:
    """Return the answer of each completion of a group.

    Numbers are normalised to one form. The answer is empty if there is none, if it is too long to
    compare, or if the completion was cut off.

    Args:
        group: The judged group.
        tells: Whether the verifier reports the extracted answer; else the last number is taken.
    """
    return [
        ""
        if member.completion.finish_reason == "length"
        else standard(taken(member) if tells else last_number(member.completion.text))
        for member in group.members
    ]


def taken(member: Judged) -> str:
    """Return the answer that the first verifier extracted from a completion; may be empty."""
    verdict = next(iter(member.verdicts.values()), None)
    return (verdict.extracted if verdict is not None else None) or ""


@lru_cache(maxsize=8192)  # many completions give the same answer
def standard(text: str) -> str:
    """Return an answer in normal form, so that equal ones are equal texts; empty if it is long."""
    value = plain(text)
    if value is not None:
        whole = value.denominator == 1
        return str(value.numerator) if whole else f"{float(value):.12g}"
    bare = " ".join(text.casefold().split())
    return bare if len(bare) <= SHORT else ""


def stated_reference(problem: Problem) -> str:
    """Return the reference in a problem's spec, in normal form; empty if there is none."""
    for name in STATED:
        value = problem.spec.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return final_answer(str(value))
    return ""


def final_answer(text: str) -> str:
    """Return the final answer of a reference, which may be a whole solution, in normal form."""
    found = _FINAL.search(text)
    return standard(found["hash"] or found["box"] or "" if found else text)
