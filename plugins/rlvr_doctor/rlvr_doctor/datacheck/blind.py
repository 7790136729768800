"""Answers without reading the question, and the best strategy for them.

The most common answers are those of one half of a tag's problems, tried on the other half, and so
is the choice of the best strategy. Of a hundred strategies one is always lucky on a few problems;
only its rate on other problems is meaningful.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlvr_core.api import Json, Problem
from rlvr_doctor.datacheck.cuts import CONSTANTS, cuts
from rlvr_doctor.datacheck.forms import Form

COMMON = 5
"""Number of most common answers to try."""


@dataclass(frozen=True)
class Case:
    """One problem under test.

    Attributes:
        problem: The problem.
        prompt: The prompt as one text.
        gold: A right response; None if the verifier has none.
        form: The place of the answer in a response.
        half: The half of its tag that it belongs to, 0 or 1.
    """

    problem: Problem
    prompt: str
    gold: str | None
    form: Form
    half: int = 0


def common_answers(cases: Sequence[Case]) -> list[Json]:
    """Return the most common right answers to some problems, without their questions."""
    known = Counter(
        json.dumps(case.form.answer, sort_keys=True) for case in cases if case.gold is not None
    )
    return [json.loads(text) for text, _ in known.most_common(COMMON)]


def guesses(case: Case, common: Sequence[Json]) -> dict[str, str]:
    """Return one response per strategy; ``common`` are answers to other problems than this one."""
    responses = {"an empty response": ""}
    for index, answer in enumerate(common):
        responses[f"most common answer {index + 1}"] = case.form.write(answer)
    if isinstance(case.form.answer, str):
        constants = {f"always {text!r}": text for text in CONSTANTS}
        for name, text in (constants | dict(cuts(case.prompt))).items():
            responses[name] = case.form.write(text)
    return responses


@dataclass(slots=True)
class Tried:
    """Outcomes by strategy and half."""

    passed: dict[str, list[int]] = field(default_factory=dict)
    n: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, half: int, outcomes: Mapping[str, bool]) -> None:
        """Count the outcomes of one problem's strategies."""
        self.n[half] += 1
        for name, passed in outcomes.items():
            self.passed.setdefault(name, [0, 0])[half] += passed

    def best(self) -> tuple[str, int]:
        """Return the strategy that passes most often, and how often."""
        name = max(self.passed, key=lambda name: sum(self.passed[name]), default="")
        return name, sum(self.passed.get(name, (0,)))

    def cross_fitted(self) -> int:
        """Return the passes of each half's best strategy on the other half."""
        total = 0
        for half in (0, 1):
            rows = self.passed.values()
            chosen = max(rows, key=lambda row: row[1 - half], default=[0, 0])
            total += chosen[half] if chosen[1 - half] else 0
        return total
