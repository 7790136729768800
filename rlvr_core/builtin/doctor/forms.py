"""The form in which a stated reference passes, of verifiers that offer no gold response."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rlvr_core.api.services import outcome
from rlvr_core.builtin.doctor.report import Answer, share

if TYPE_CHECKING:
    from rlvr_core.builtin.doctor.subject import Reference, Subject

FEWEST = 4
"""Minimum problems with a stated reference to judge by."""
PROBLEMS = 24
"""Maximum problems to try of each pair of data set and verifier."""
FORMS = 16
"""Approximate number of forms to try on a problem."""
SHOWN = 40
"""Characters of a form to show: its end, where the answer stands."""


@dataclass(frozen=True, slots=True)
class Written:
    """References of one pair of data set and verifier, in the form in which most pass.

    Attributes:
        form: The form; empty if the references pass in none.
        forms: Number of tried forms.
        n: Number of tried problems.
        passing: The references that pass in this form, each with its response.
    """

    form: str
    forms: int
    n: int
    passing: tuple[Reference, ...]

    @property
    def name(self) -> str:
        """The form, or its end if it is long."""
        return repr(self.form) if len(self.form) <= SHOWN else f"long text and {self.form[-20:]!r}"


def written(subject: Subject) -> dict[str, Written]:
    """Try references that have no gold response in all forms, by data set and verifier."""
    forms_of = subject.prepared.resolved.host.service("core/answer-forms")
    pairs: dict[str, list[tuple[Reference, dict[str, str]]]] = {}
    for one in subject.affordable(FORMS):
        some = pairs.setdefault(subject.pair(one.problem), [])
        forms = {} if one.response else forms_of(one.problem)
        if forms and len(some) < PROBLEMS:
            some.append((one, forms))
    return {pair: _tried(subject, some) for pair, some in pairs.items() if len(some) >= FEWEST}


def _tried(subject: Subject, some: list[tuple[Reference, dict[str, str]]]) -> Written:
    waiting = [subject.verdicts(one.problem, list(forms.values())) for one, forms in some]
    passed: Counter[str] = Counter()
    passing: dict[str, list[Reference]] = {}
    for (one, forms), future in zip(some, waiting, strict=True):
        name = subject.main(one.problem)
        # the first form is the bare answer
        answer = next(iter(forms.values()))
        for (form, text), row in zip(forms.items(), future.result(subject.patience), strict=True):
            if outcome(row[name]):
                passed[form] += 1
                found = replace(one, response=text, answer=answer, verdict=row[name])
                passing.setdefault(form, []).append(found)
    # the first of equal ones: forms begin with the plainest
    form = max(some[0][1], key=lambda one: passed[one])
    best = form if passed[form] else ""
    return Written(best, len(some[0][1]), len(some), tuple(passing.get(best, ())))


def stated_passes(subject: Subject) -> list[Answer]:
    """Check whether a verifier without gold responses passes the reference in any form."""
    found = []
    for pair, one in subject.written.items():
        if one.form:
            words = f"{share(len(one.passing), one.n)} references pass, written as {one.name}"
            found.append(Answer("ok", f"{pair}: {words}"))
            continue
        found.append(
            Answer(
                "fail",
                f"{pair}: the reference passes in none of {one.forms} forms on {one.n} problems: "
                "the verifier passes nothing, or wants a form that the prompt must ask for",
                "give the verifier a gold() method, and try it: rlvr verify",
                weight=150,
            )
        )
    return found
