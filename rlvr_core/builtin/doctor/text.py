"""Prints the report of an examination to a terminal."""

from __future__ import annotations

from rlvr_core.api.services import output
from rlvr_core.builtin.doctor.report import Report

MARKS = {"ok": "ok", "note": "-", "warn": "DOUBT", "fail": "WRONG", "skip": "skipped"}


def print_report(report: Report) -> None:
    """Print texts, the table of checks, the verdict and the most useful changes."""
    for title, text in report.shown.items():
        output.print_line(f"{title}:")
        for line in text.splitlines():
            output.print_line(f"    {line}")
    rows = [(one.id, MARKS[one.answer.level], one.answer.value) for one in report.findings]
    output.print_table(("check", "", "measured"), rows)
    wrong, doubts = len(report.level("fail")), len(report.level("warn"))
    output.print_line(f"verdict: {report.verdict} ({wrong} wrong, {doubts} doubtful)")
    if report.changes:
        output.print_line("the most useful changes:")
    for place, one in enumerate(report.changes, 1):
        output.print_line(f"  {place}. {one.id}: {one.answer.remedy}")
