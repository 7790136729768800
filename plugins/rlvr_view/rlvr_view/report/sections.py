"""Builds the parts of the page from the records: figures, tables, samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_core.api import Metric
from rlvr_core.record.ledger import FATES
from rlvr_core.record.speed import phase_rows
from rlvr_core.toolkit import brief, printable
from rlvr_view.report import accounts, comparing, learning
from rlvr_view.report.comparing import Difference, Table
from rlvr_view.report.explain import explanations
from rlvr_view.report.findings import run_findings
from rlvr_view.report.groups import outcome, shown_completions
from rlvr_view.report.plot import Plot
from rlvr_view.report.records import Records

TEXT = 4000
"""Maximum characters shown of a prompt or a completion; longer ones lose their middle."""
TRACEBACK = 8000


@dataclass(slots=True)
class Section:
    """A part of the page.

    Attributes:
        id: Anchor in the page.
        title: The heading.
        text: The introduction.
        plots: The plots.
        tables: The tables.
        differences: Differences between the runs.
    """

    id: str
    title: str
    text: str = ""
    plots: list[Plot] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it."""
        return not (self.plots or self.tables or self.differences)


def sections(runs: Sequence[Records]) -> list[Section]:
    """Return the sections that are not empty, in the order of the page."""
    every = [
        Section("learning", "Learning", plots=_drawn(learning.learning(runs))),
        _comparison(runs),
        _evaluations(runs),
        Section("kinds", "Pass rate by kind of problem", plots=_drawn(learning.kinds(runs))),
        _guards(runs),
        _ledger(runs),
        Section("staleness", "Staleness", plots=_drawn(accounts.staleness(runs))),
        _timing(runs),
    ]
    return [section for section in every if not section.empty]


def metric_plots(runs: Sequence[Records]) -> tuple[list[Plot], dict[str, Metric | None]]:
    """Return a plot of each metric of any run, and the declaration of each."""
    names = sorted({name for run in runs for name in run.metrics})
    declared = explanations(names, [run.view.config for run in runs])
    return _drawn(accounts.metrics(runs, declared)), declared


def samples(run: Records) -> list[dict[str, Any]]:
    """Return the groups to show, with printable text."""
    return [
        {
            "step": row["step"],
            "problem": printable(str(row.get("problem_id")), 200),
            "dataset": printable(str(row.get("dataset") or ""), 200),
            "outcome": outcome(row),
            "prompt": printable(str(row.get("prompt") or ""), TEXT),
            "n": len(row["completions"]),
            "completions": [
                _completion(shown_completion) for shown_completion in shown_completions(row)
            ],
        }
        for row in run.groups.samples
    ]


def trouble(run: Records) -> list[str]:
    """Return error, traceback and notes of a run."""
    texts = [run.summary["error"], run.summary["reason"], run.view.manifest.get("traceback")]
    return [printable(str(text), TRACEBACK) for text in texts if text]


def _completion(row: Mapping[str, Any]) -> dict[str, Any]:
    facts = {
        "outcome": {True: "right", False: "wrong"}.get(row["passed"], "not judged"),
        "reward": _number(row.get("reward")),
        "advantage": _number(row.get("advantage")),
        "fate": str(row.get("fate") or "").replace("_", " "),
        "finished by": str(row.get("finish_reason") or ""),
        "tokens": str(row.get("n_tokens", "")),
    }
    verdicts = row["verdicts"] if isinstance(row.get("verdicts"), dict) else {}
    return {
        "text": printable(str(row.get("text") or ""), TEXT),
        "facts": {name: printable(fact, 80) for name, fact in facts.items() if fact},
        "verdicts": [
            printable(f"{name}: {_verdict(verdict)}", 500)
            for name, verdict in verdicts.items()
            if isinstance(verdict, dict)
        ],
    }


def _verdict(verdict: Mapping[str, Any]) -> str:
    score, status = verdict.get("score"), verdict.get("status")
    parts = [_number(score) or "no score"] + [str(status)] * (status not in ("ok", None))
    return ", ".join([*parts, *filter(None, [str(verdict.get("detail") or "")])])


def _comparison(runs: Sequence[Records]) -> Section:
    several = len(runs) > 1
    text = (
        "P-values are exact, by flipping the signs of the problems' differences; the second one is "
        "adjusted for the number of tests (Holm). Two runs of one seed each differ by chance, too: "
        "a test says whether these two models differ, not whether their settings do."
        if several
        else "P-values are exact, by flipping the signs of the problems' differences; the second "
        "one is adjusted for the number of tests (Holm)."
    )
    section = Section("comparison", "Comparison" if several else "Before and after", text)
    table = comparing.tests(runs)
    section.tables = [table] if table else []
    if several:
        section.differences = list(comparing.differences(runs))
    return section


def _evaluations(runs: Sequence[Records]) -> Section:
    rows = [
        (
            *_label(run, runs),
            learning.task_name(point["task"], point["temperature"]),
            str(point["step"]),
            str(point["n"]),
            comparing.interval({**point, "value": point["metrics"].get("accuracy")}),
            ", ".join(
                f"{name} {_number(value) or 'not finite'}"
                for name, value in point["metrics"].items()
                if name != "accuracy"
            ),
        )
        for run in runs
        for point in run.evaluations
    ]
    head = (*_run_column(runs), "task", "steps", "n", "accuracy", "other metrics")
    table = Table("Every evaluation, with the 95% interval of its accuracy", head, rows)
    return Section("evaluations", "Evaluations", tables=[table] if rows else [])


def _guards(runs: Sequence[Records]) -> Section:
    rows = [
        (
            *_label(run, runs),
            finding["metric"],
            str(len(finding["steps"])),
            str(finding["steps"][0]),
            f"{max(finding['values']):.4g}",
        )
        for run in runs
        for finding in run_findings(run.view)
    ]
    head = (*_run_column(runs), "metric", "steps", "first after", "largest value")
    text = (
        "Metrics that are 0 in each step of a healthy run. What guards warned about stands under "
        "Outcome; the message of a guard that stopped the run is the error there."
    )
    if not rows:
        text = f"No metric is out of place. {text}"
    return Section("guards", "Guards", text, tables=[Table("Findings", head, rows)] if rows else [])


def _ledger(runs: Sequence[Records]) -> Section:
    books = {run.label: run.summary["ledger"] for run in runs if run.summary.get("ledger")}
    if not books:
        return Section("ledger", "Ledger")
    text = " ".join(
        f"{label}: {'it balances' if book['balanced'] else 'IT DOES NOT BALANCE'}."
        for label, book in books.items()
    )
    names = list(dict.fromkeys(name for book in books.values() for name in book))
    columns = [name for name in ("drawn", *FATES, "in_flight") if name in names]
    columns += [name for name in names if "/" in name]
    rows = [
        (name.replace("_", " "), *(_share(book, name) for book in books.values()))
        for name in columns
        if any(book.get(name) for book in books.values())
    ]
    table = Table("Completions of the whole run", ("fate", *books), rows)
    return Section("ledger", "Ledger", text, _drawn(accounts.ledger(runs)), [table])


def _share(book: Mapping[str, Any], name: str) -> str:
    count, drawn = book.get(name, 0), book["drawn"]
    return f"{count:,}" + (f" ({count / drawn:.1%})" if drawn and name != "drawn" else "")


def _timing(runs: Sequence[Records]) -> Section:
    rows = [
        (*_label(run, runs), phase, f"{seconds:.1f}", share)
        for run in runs
        for phase, seconds, share in phase_rows(accounts.totals(run.timing))
    ]
    head = (*_run_column(runs), "phase", "seconds", "share of the steps' time")
    tables = [Table("Seconds by phase; a phase with a dot is a part of another", head, rows)]
    return Section(
        "timing", "Time", plots=_drawn(accounts.timing(runs)), tables=tables if rows else []
    )


def _run_column(runs: Sequence[Records]) -> tuple[str, ...]:
    return ("run",) if len(runs) > 1 else ()


def _label(run: Records, runs: Sequence[Records]) -> tuple[str, ...]:
    """Return the cell that names a run, where there are several."""
    return (run.label,) if len(runs) > 1 else ()


def _drawn(plots: Iterable[Plot]) -> list[Plot]:
    return [plot for plot in plots if not plot.empty]


def _number(value: Any) -> str:
    return brief(value) if isinstance(value, int | float) else ""
