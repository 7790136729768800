"""Checks, findings and reports of an examination: a finding is the answer to a check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from rlvr_core.api import Json, RlvrError

Level = Literal["ok", "note", "warn", "fail", "skip"]
"""``note``: measured, nothing to judge. ``skip``: could not be measured, and ``value`` says why."""

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the question of a check.

    Attributes:
        level: The verdict.
        value: The measurement, in words and numbers.
        remedy: What to do about it; empty if nothing is wrong.
        weight: Rank among suggested changes, highest first; 0 for the default of the level.
        data: The measured numbers, for ``--json``.
    """

    level: Level
    value: str
    remedy: str = ""
    weight: int = 0
    data: Json = None


@dataclass(frozen=True, slots=True)
class Check(Generic[S]):
    """One question that an examination asks.

    Attributes:
        id: ``<part>/<name>``, stable.
        question: The question; the healthy answer is yes.
        ask: Measures, and returns None if the check does not apply.
    """

    id: str
    question: str
    ask: Callable[[S], Answer | Sequence[Answer] | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one check."""

    id: str
    question: str
    answer: Answer

    @property
    def weight(self) -> int:
        """Rank among the suggested changes."""
        return self.answer.weight or {"fail": 100, "warn": 50}.get(self.answer.level, 0)

    def as_json(self) -> dict[str, Json]:
        """Return the finding as JSON."""
        found: dict[str, Json] = {
            "id": self.id,
            "question": self.question,
            "verdict": self.answer.level,
            "measured": self.answer.value,
            "remedy": self.answer.remedy,
        }
        return found if self.answer.data is None else {**found, "data": self.answer.data}


@dataclass(slots=True)
class Report:
    """The results of an examination.

    Attributes:
        findings: The findings, in the order of the checks.
        shown: Texts to print by title, such as a rendered prompt.
        lost: Whether verdicts did not arrive in time.
    """

    findings: list[Finding] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)
    lost: bool = False

    def add(self, id_: str, question: str, answer: Answer) -> None:
        """Add one finding."""
        self.findings.append(Finding(id_, question, answer))

    def ask(self, checks: Iterable[Check[S]], subject: S) -> None:
        """Run each check on a subject; one that fails to run is reported as skipped."""
        for check in checks:
            try:
                found = check.ask(subject)
            except RlvrError as error:
                found = refused(error)
            except TimeoutError:
                self.lost = True
                found = Answer(
                    "fail",
                    "verdicts did not come in time: the pool lost them, or a verifier waits",
                    "try the verifier: rlvr verify",
                )
            except Exception as error:  # one failing check must not prevent the others
                found = Answer("skip", f"could not be measured: {type(error).__name__}: {error}")
            for answer in [found] if isinstance(found, Answer) else found or ():
                self.add(check.id, check.question, answer)

    def refusal(self, id_: str, question: str, error: RlvrError) -> None:
        """Add each complaint of an error as a finding."""
        for answer in refused(error):
            self.add(id_, question, answer)

    def level(self, *levels: Level) -> list[Finding]:
        """Return the findings of these levels."""
        return [one for one in self.findings if one.answer.level in levels]

    @property
    def verdict(self) -> Literal["healthy", "doubtful", "broken"]:
        """``broken`` if any check failed, ``doubtful`` if any warned."""
        if self.level("fail"):
            return "broken"
        return "doubtful" if self.level("warn") else "healthy"

    @property
    def changes(self) -> list[Finding]:
        """The three most useful changes, the most useful first."""
        wrong = [one for one in self.level("fail", "warn") if one.answer.remedy]
        return sorted(wrong, key=lambda one: -one.weight)[:3]

    def as_json(self) -> dict[str, Json]:
        """Return the report as JSON."""
        return {
            "verdict": self.verdict,
            "changes": [f"{one.id}: {one.answer.remedy}" for one in self.changes],
            "checks": [one.as_json() for one in self.findings],
            "shown": dict(self.shown),
        }


def refused(error: RlvrError) -> list[Answer]:
    """Return one failure for each complaint of an error."""
    return [
        Answer(
            "fail",
            one.what + (f" [{one.where}]" if one.where else ""),
            "; ".join(one.remedy) or f"mend {one.where or 'it'}",
            weight=200,
        )
        for one in error.complaints
    ]


def share(count: int, total: int) -> str:
    """Return ``3 of 40 (7.5 %)``."""
    return f"{count} of {total}" + (f" ({100 * count / total:.3g} %)" if total else "")


def at_first(items: Sequence[Any], n: int = 3) -> str:
    """Return the first few items, separated by commas."""
    return ", ".join(str(one) for one in items[:n]) + (", ..." if len(items) > n else "")


def outweighing(
    main: float, others: Mapping[str, float], limit: float
) -> tuple[str, float, bool] | None:
    """Compare the largest of the other rewards with that of the outcome.

    Args:
        main: Size of the outcome's reward.
        others: Sizes of the others by name.
        limit: Factor above which one outweighs the outcome.

    Returns:
        Name and size of the largest, and whether it outweighs the outcome; None if there are no
        others, or the outcome's is 0.
    """
    if not others or not main:
        return None
    name, most = max(others.items(), key=lambda item: item[1])
    return name, most, most > limit * main
