"""Test cases of verifiers: a problem's spec, a response, and the expected verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from rlvr_core.api import Complaint, Completion, DataError, Problem
from rlvr_core.data.rows import read_rows


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


class _Row(BaseModel, extra="forbid", strict=True):
    id: str | int | None = None
    spec: dict[str, Any]
    prompt: str = ""
    response: str
    passed: bool | None = None
    score: float | None = None
    note: str = ""


def load_cases(source: str | Path | Sequence[Mapping[str, Any]]) -> tuple[Case, ...]:
    """Read cases.

    Args:
        source: A JSON-lines file, or rows. A row has ``spec`` and ``response``, at least one of
            ``passed`` and ``score``, and may have ``id``, ``prompt`` and ``note``.

    Raises:
        DataError: If a row is malformed, or there is none; all faults at once.
    """
    if isinstance(source, (str, Path)):
        rows = [(f"{source}:{line}", row) for line, row in read_rows(source)]
    else:
        rows = [(f"case {index}", dict(row)) for index, row in enumerate(source)]
    cases: list[Case] = []
    complaints: list[Complaint] = []
    for where, raw in rows:
        try:
            row = _Row.model_validate(raw)
        except ValidationError as error:
            fault = error.errors()[0]
            name = ".".join(map(str, fault["loc"]))
            complaints.append(Complaint(f"'{name}': {fault['msg']}", where))
            continue
        if row.passed is None and row.score is None:
            complaints.append(Complaint("a case needs 'passed' or 'score'", where))
        id_ = str(where if row.id is None else row.id)
        problem = Problem(id_, row.prompt, verifier="", spec=row.spec, dataset="cases")
        cases.append(Case(problem, row.response, row.passed, row.score, where))
    if complaints:
        raise DataError.collect(complaints)
    if not cases:
        raise DataError("there are no cases", where=str(source))
    return tuple(cases)
