"""The suite's page: cells and figures from what was measured, in words of ``prose``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos import prose
from chaos.cells import KINDS, NOT_APPLICABLE, NOT_RUN, Run, kind
from chaos.registry import DTYPES, Fault
from chaos.sets import SETS

ENGINES = ("in process", "two processes", "child", "vllm", "rlvr eval")
SHORT = {"float32": "f32", "bfloat16": "bf16"}


def page(
    faults: Sequence[Fault],
    cells: Mapping[Run, str],
    healthy: Sequence[Mapping[str, Any]],
    before: str,
) -> str:
    """Return the whole page.

    Args:
        faults: All faults.
        cells: What is known of their runs.
        healthy: Results of healthy runs; empty keeps what the page said of them before.
        before: The page as it was; empty if there was none.
    """
    of_set = {fault.name: fault.set for fault in faults}
    known = {run: cells.get(run, NOT_RUN) for run in _declared(faults)}
    return "\n".join(
        [
            prose.HEAD.format(faults=len(faults), sets=len(SETS)),
            prose.FIGURES,
            _by_engine(known),
            _by_class(faults, known),
            prose.UNREAD,
            _unread(Counter(of_set.values())),
            prose.HEALTHY,
            _healthy(healthy, before),
            prose.MISSED,
            _missed(faults, known),
            prose.MUTANTS,
            prose.FAULTS,
            _tables(faults, known),
        ]
    )


def _declared(faults: Sequence[Fault]) -> list[Run]:
    return [
        (fault.name, engine, dtype)
        for fault in faults
        for engine in fault.backends
        for dtype in fault.dtypes
    ]


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    whole = [list(head), *(list(map(str, row)) for row in rows)]
    lines = [f"| {' | '.join(row)} |" for row in whole]
    lines.insert(1, f"|{'---|' * len(whole[0])}")
    return "\n".join(lines) + "\n"


def _counted(cells: Iterable[str]) -> list[object]:
    counts = Counter(map(kind, cells))
    n = sum(counts[one] for one in KINDS)
    right = counts["stopped"] + counts["note"]
    share = f"{100 * right / n:.1f} %" if n else NOT_APPLICABLE
    return [n, *(counts[one] for one in KINDS), share, counts[""]]


def _by_engine(known: Mapping[Run, str]) -> str:
    head = ("engine", "precision", "runs", *KINDS, "right name", "not run")
    rows = [
        (
            engine,
            dtype,
            *_counted(cell for run, cell in known.items() if run[1:] == (engine, dtype)),
        )
        for engine in ENGINES
        for dtype in DTYPES
    ]
    rows += [
        ("**all**", dtype, *_counted(cell for run, cell in known.items() if run[2] == dtype))
        for dtype in DTYPES
    ]
    return _table(head, rows)


def _by_class(faults: Sequence[Fault], known: Mapping[Run, str]) -> str:
    cls_of = {fault.name: fault.cls for fault in faults}
    head = ["class", *(f"{SHORT[d]}: {what}" for d in DTYPES for what in ("runs", "right", "%"))]
    rows = []
    for cls in _classes(faults):
        row: list[object] = [cls]
        for dtype in DTYPES:
            mine = (
                cell for run, cell in known.items() if run[2] == dtype and cls_of[run[0]] == cls
            )
            n, stopped, note, *_ = map(int, _counted(mine)[:5])  # type: ignore[call-overload]
            right = stopped + note
            row += [n, right, f"{100 * right / n:.1f}" if n else NOT_APPLICABLE]
        rows.append(row)
    return _table(head, rows)


def _unread(sizes: Mapping[int, int]) -> str:
    head = ("set", "faults", "about", *(f"in process, {SHORT[d]}" for d in DTYPES))
    rows = []
    for number, one in SETS.items():
        inside = [_share(one.unread.get(("in process", dtype))) for dtype in DTYPES]
        rest = [value for run, value in one.unread.items() if run[0] != "in process"]
        others = _share((sum(a for a, _ in rest), sum(n for _, n in rest)) if rest else None)
        rows.append((number, sizes[number], one.about, *inside, others, one.after))
    return _table((*head, "other engines", "added afterwards"), rows)


def _share(value: tuple[int, int] | None) -> str:
    if value is None:
        return NOT_APPLICABLE
    right, n = value
    return f"{right} of {n} ({100 * right / n:.0f} %)"


def _healthy(healthy: Sequence[Mapping[str, Any]], before: str) -> str:
    if not healthy:
        found = re.search(r"^Healthy runs: .*$", before, re.MULTILINE)
        return found.group() + "\n" if found else ""
    shapes = {line["shape"] for line in healthy}
    disturbed = [line["case"] for line in healthy if line["code"] != 0]
    names = f": {', '.join(disturbed)}" if disturbed else ""
    counts = f"{len(healthy)}, of {len(shapes)} shapes, {len(disturbed)} disturbed"
    return f"Healthy runs: {counts}{names}.\n"


def _classes(faults: Sequence[Fault]) -> list[str]:
    """Return the classes in the order of the first set."""
    return list(dict.fromkeys(one.cls for one in sorted(faults, key=lambda one: one.set)))


def _missed(faults: Sequence[Fault], known: Mapping[Run, str]) -> str:
    rows = []
    order = _classes(faults)
    for fault in sorted(faults, key=lambda one: (order.index(one.cls), one.set)):
        bad = [run for run, cell in known.items() if run[0] == fault.name and not _right(cell)]
        where = [f"{engine}, {SHORT[dtype]}" for _, engine, dtype in bad]
        if bad:
            rows.append((fault.cls, f"`{fault.name}`", fault.set, "; ".join(where)))
    return _table(("class", "fault", "set", "missed, or given a wrong name"), rows)


def _right(cell: str) -> bool:
    return kind(cell) in ("stopped", "note", "")


def _tables(faults: Sequence[Fault], known: Mapping[Run, str]) -> str:
    out = []
    for cls in _classes(faults):
        mine = sorted((one for one in faults if one.cls == cls), key=lambda one: one.set)
        columns = [
            (engine, dtype)
            for engine in ENGINES
            for dtype in DTYPES
            if any((fault.name, engine, dtype) in known for fault in mine)
        ]
        head = ["fault", *(f"{engine}, {SHORT[dtype]}" for engine, dtype in columns)]
        rows = [
            (
                f"{fault.what.rstrip('.')} (`{fault.name}`, set {fault.set})",
                *(known.get((fault.name, *column), NOT_APPLICABLE) for column in columns),
            )
            for fault in mine
        ]
        out.append(f"### {cls}\n\n{_table(head, rows)}")
    return "\n".join(out)


def write(
    path: Path,
    faults: Sequence[Fault],
    cells: Mapping[Run, str],
    healthy: Sequence[Mapping[str, Any]],
) -> None:
    """Write the page."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(page(faults, cells, healthy, before), encoding="utf-8")
