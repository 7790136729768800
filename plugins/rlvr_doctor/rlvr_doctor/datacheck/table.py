"""Prints the report of a check to a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr_core.toolkit import print_line, print_table

if TYPE_CHECKING:
    from rlvr_doctor.datacheck.checks import Rate, Report, TagReport

HEADERS = ("tag", "n", "references", "corrupted", "blind", "95% interval", "shuffled", "best", "")


def print_report(report: Report) -> None:
    """Print a report: one row per tag, then the faults."""
    print_line(f"{report.source}: {report.problems} problems, {report.duplicates} of them copies")
    print_table(HEADERS, [_row(tag) for tag in report.tags])
    for tag in report.tags:
        for fault in tag.faults:
            print_line(f"{tag.tag}: {fault.text}")
    for fault in report.faults:
        print_line(fault.text)
    print_line("passes" if report.ok else "does not pass")


def _row(tag: TagReport) -> tuple[str, ...]:
    low, high = tag.blind.interval
    return (
        tag.tag,
        str(tag.n),
        f"{tag.references.passed}/{tag.references.n}" if tag.references.n else "none",
        _share(tag.corrupted),
        _share(tag.blind),
        f"{low:.2f} .. {high:.2f}",
        _share(tag.shuffled),
        tag.blind.what[:60],
        "FAILS" if tag.faults else "ok",
    )


def _share(rate: Rate) -> str:
    return f"{rate.value:.2f}" if rate.n else "-"
