"""Test cases of verifiers: a problem's spec, a response, and the expected verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_core.api import Complaint, Completion, DataError, Problem
from rlvr_core.api.services import read_rows

FIELDS = ("id", "spec", "prompt", "response", "passed", "score", "note")


@dataclass(frozen=True, slots=True)
class Case:
    """One response and the verdict it must get.

    Attributes:
        problem: The problem.
        response: The text to judge.
        passed: Whether it is right; None when only the score is stated.
        score: The exact score; None when only the outcome is stated.
        where: File and line, or position in the list.
    """

    problem: Problem
    response: str
    passed: bool | None
    score: float | None
    where: str

    @property
    def completion(self) -> Completion:
        """The response as the completion for a verifier."""
        return Completion.from_text(self.response)


def load_cases(source: str | Path | Sequence[Mapping[str, Any]]) -> tuple[Case, ...]:
    """Read cases.

    Args:
        source: A JSON-lines file, or rows. A row has ``spec`` and ``response``, at least one of
            ``passed`` and ``score``, and may have ``id``, ``prompt`` and ``note``.

    Raises:
        DataError: If a row is malformed, or there is none; all faults at once.
    """
    if isinstance(source, (str, Path)):
        rows: Iterable[tuple[str, Mapping[str, Any]]] = (
            (f"{source}:{line}", row) for line, row in read_rows(source)
        )
    else:
        rows = ((f"case {index}", row) for index, row in enumerate(source))
    cases: list[Case] = []
    complaints: list[Complaint] = []
    for where, row in rows:
        fault = _fault(row)
        if fault:
            complaints.append(Complaint(fault, where))
        else:
            cases.append(_case(row, where))
    if complaints:
        raise DataError.collect(complaints)
    if not cases:
        raise DataError("there are no cases", where=str(source))
    return tuple(cases)


def _fault(row: Mapping[str, Any]) -> str:
    unknown = [key for key in row if key not in FIELDS]
    if unknown:
        return f"unknown field {unknown[0]!r}; a case has {', '.join(FIELDS)}"
    if not isinstance(row.get("spec"), Mapping):
        return "'spec' must be a mapping: what the verifier needs to know of the problem"
    if not isinstance(row.get("response"), str):
        return "'response' must be text"
    passed, score = row.get("passed"), row.get("score")
    if passed is None and score is None:
        return "a case needs 'passed' or 'score'"
    if not isinstance(passed, (bool, type(None))):
        return "'passed' must be true or false"
    if isinstance(score, bool) or not isinstance(score, (int, float, type(None))):
        return "'score' must be a number"
    return ""


def _case(row: Mapping[str, Any], where: str) -> Case:
    problem = Problem(
        id=str(row.get("id", where)),
        prompt=str(row.get("prompt", "")),
        verifier="",
        spec=row["spec"],
        dataset="cases",
    )
    return Case(problem, row["response"], row.get("passed"), row.get("score"), where)
