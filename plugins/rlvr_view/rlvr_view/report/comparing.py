"""Differences between runs, and paired tests of their evaluations, as text tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_core.toolkit import brief, printable
from rlvr_view.report.learning import task_name
from rlvr_view.report.records import Records

_VALUE = 300


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text.

    Attributes:
        caption: Caption of the table.
        head: Titles of its columns.
        rows: Cells; the first one of a row is its title.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences of a run from the first one.

    Attributes:
        other: Label of the run.
        config: Keys of the configuration with both values.
        parts: The other differences.
        same: Parts that are equal, and parts that were not recorded, in words.
    """

    other: str
    config: Table
    parts: Table
    same: str


def differences(runs: Sequence[Records]) -> Iterator[Difference]:
    """Yield the differences of each run from the first."""
    first = runs[0]
    from rlvr_view.differences import compare_runs as compare

    for other in runs[1:]:
        comparison = compare(first.view, other.view).data()
        parts = dict(comparison["differences"])
        keys = [
            (line["key"], *(_value(value) for value in line["values"]))
            for line in parts.pop("config", [])
        ]
        rest = [(part, line["text"]) for part, lines in parts.items() for line in lines]
        words = f"The same: {', '.join(comparison['same']) or 'nothing'}."
        if comparison["unknown"]:
            unknown = (f"{part} ({why})" for part, why in comparison["unknown"].items())
            words += f" Not known: {', '.join(unknown)}."
        yield Difference(
            other.label,
            Table("Configuration", ("key", first.label, other.label), keys),
            Table("Code, data, model, versions, machine", ("part", "difference"), rest),
            words,
        )


def tests(runs: Sequence[Records]) -> Table | None:
    """Return the paired tests of evaluations; None if there is nothing to compare."""
    from rlvr_view.report.paired import paired_evaluations

    paired = paired_evaluations([run.view for run in runs])
    if not paired:
        return None
    names = [run.label for run in runs]
    caption = (
        "Last evaluation of each run against that of the first run"
        if len(runs) > 1
        else "Last evaluation of each task against its first"
    )
    head = ("task", "before", "after", "difference", "problems", "rose, fell", "p", "p (Holm)")
    return Table(caption, head, [_test(test, names, len(runs) > 1) for test in paired])


def _test(test: Mapping[str, Any], names: Sequence[str], several: bool) -> tuple[str, ...]:
    ends = []
    for end in (test["before"], test["after"]):
        place = f"after {end['step']} steps"
        ends.append(f"{names[end['run']]}, {place}" if several else place)
    title = task_name(test["task"], test["temperature"])
    if "refused" in test:
        return (title, *ends, f"not tested: {test['refused']}", str(test["n"]), "", "", "")
    values = [
        f"{interval(test[key]['estimate'])}, {end}" for key, end in zip(_ENDS, ends, strict=True)
    ]
    left_out = f" ({test['left_out']} left out)" if test["left_out"] else ""
    return (
        title,
        *values,
        interval(test["difference"], "+"),
        f"{test['n']}{left_out}",
        f"{test['gained']}, {test['lost']}",
        probability(test["p"]),
        probability(test["p_holm"]),
    )


_ENDS = ("before", "after")


def interval(estimate: Mapping[str, Any], sign: str = "") -> str:
    """Format an estimate with its interval: ``0.953 [0.920, 0.973]``."""
    if estimate.get("value") is None:
        return "none"
    value = f"{estimate['value']:{sign}.3f}"
    if estimate.get("low") is None or estimate.get("high") is None:
        return value
    return f"{value} [{estimate['low']:{sign}.3f}, {estimate['high']:{sign}.3f}]"


def probability(p: float | None) -> str:
    """Format a p-value; very small ones as a bound."""
    if p is None:
        return ""
    return "< 0.0001" if p < 1e-4 else brief(p, 4)


def _value(value: Any) -> str:
    return "not set" if value is None else printable(json.dumps(value, ensure_ascii=False), _VALUE)
