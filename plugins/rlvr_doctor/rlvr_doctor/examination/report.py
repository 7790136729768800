"""The report of an examination: asks checks, keeps their findings, prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

from rlvr_core.api import Finding, Json, RlvrError, one_line
from rlvr_core.toolkit import print_json, print_line, print_table, printable

S = TypeVar("S")

Check = tuple[str, Callable[[S], Finding | Iterable[Finding] | None]]
"""Id of a finding, and the function that looks; None where there is nothing to look at."""
MARKS = {"ok": "ok", "note": "-", "warn": "DOUBT", "fail": "WRONG"}


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

    def ask(self, checks: Iterable[Check[S]], subject: S) -> None:
        """Run each check on a subject; one that fails to run is noted, and does not stop others."""
        for id_, look in checks:
            try:
                answer = look(subject)
                self.findings += [answer] if isinstance(answer, Finding) else answer or ()
            except RlvrError as error:
                self.findings += refused(id_, error)
            except TimeoutError:
                self.lost = True
                what = "verdicts did not come in time: the pool lost them, or a verifier waits"
                self.findings.append(Finding(id_, "fail", what, "try the verifier: rlvr verify"))
            except Exception as error:
                what = f"could not be measured: {one_line(error)}"
                self.findings.append(Finding(id_, "note", what))

    def level(self, *levels: str) -> list[Finding]:
        """Return the findings of these levels."""
        return [finding for finding in self.findings if finding.level in levels]

    @property
    def verdict(self) -> Literal["healthy", "doubtful", "broken"]:
        """``broken`` if any check failed, ``doubtful`` if any warned."""
        if self.level("fail"):
            return "broken"
        return "doubtful" if self.level("warn") else "healthy"

    def as_json(self) -> dict[str, Json]:
        """Return the report as JSON."""
        return {
            "verdict": self.verdict,
            "checks": [asdict(finding) for finding in self.findings],
            "shown": dict(self.shown),
        }

    @property
    def exit_code(self) -> int:
        """1 if any check failed."""
        return int(self.verdict == "broken")

    def show(self, *, as_json: bool) -> None:
        """Print the report as JSON, or for people."""
        if as_json:
            print_json(self.as_json())
        else:
            self.print()

    def print(self) -> None:
        """Print the texts, the table of checks, the verdict and the remedies."""
        for title, text in self.shown.items():
            print_line(f"{title}:")
            for line in text.splitlines():
                print_line(f"    {line}")
        rows = [
            (finding.id, MARKS[finding.level], output_text(finding.text))
            for finding in self.findings
        ]
        print_table(("check", "", "measured"), rows)
        wrong, doubts = len(self.level("fail")), len(self.level("warn"))
        print_line(f"verdict: {self.verdict} ({wrong} wrong, {doubts} doubtful)")
        for fault in (*self.level("fail"), *self.level("warn")):
            print_line(f"  {fault.id}: {output_text(fault.remedy)}")


def output_text(text: str) -> str:
    """Return a text that may come from a model's files as a terminal can show it."""
    return printable(text)


def refused(id_: str, error: RlvrError) -> list[Finding]:
    """Return one failure for each complaint of an error."""
    return [
        Finding(
            id_,
            "fail",
            complaint.what + (f" [{complaint.where}]" if complaint.where else ""),
            "; ".join(complaint.remedy) or f"fix {complaint.where or 'it'}",
        )
        for complaint in error.complaints
    ]


def share(count: int, total: int) -> str:
    """Return ``3 of 40 (7.5 %)``."""
    return f"{count} of {total}" + (f" ({100 * count / total:.3g} %)" if total else "")


def at_first(items: Sequence[Any], n: int = 3) -> str:
    """Return the first few items, and how many more there are."""
    more = f" and {len(items) - n} more" if len(items) > n else ""
    return ", ".join(map(str, items[:n])) + more
