"""Run the chaos suite, or a part of it, and print a table; ``--help`` shows how."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.together.chaos import process
from tests.together.chaos.cases import BACKENDS, Bench, Case
from tests.together.chaos.outcome import Outcome, judge
from tests.together.chaos.registry import DTYPES, FAULTS, load
from tests.together.chaos.shapes import SHAPES
from tests.together.chaos.table import table


def number(turn: str, name: str) -> int:
    """A number that looks drawn, the same for the same turn and name."""
    return zlib.crc32(f"{turn} {name}".encode())


def chosen(turn: str | None, name: str, of: int) -> bool:
    """Whether it is the turn of a fault or shape: of one in so many; of all without a turn."""
    return not turn or number(turn, name) % of == 0


def healthy_cases(turn: str | None) -> Iterator[Case]:
    """The healthy shapes in each precision; the base shape with every engine."""
    for shape in SHAPES:
        if chosen(turn, shape, 6):
            for backend in BACKENDS if shape == "base" else ("in process",):
                for dtype in DTYPES:
                    yield Case(backend, dtype, shape, resume=shape == "resumed")


def fault_cases(turn: str | None) -> Iterator[Case]:
    """Each fault with each of its engines and precisions; in a turn with one of them."""
    for fault in load():
        cells = [
            Case(backend, dtype, fault.shape, fault, fault.resume)
            for backend in fault.backends
            for dtype in fault.dtypes
        ]
        if turn:  # one cell for a shape, so that few healthy runs have to be made beside
            cells = [cells[number(turn, f"cell of {fault.shape}") % len(cells)]]
        if chosen(turn, fault.name, 10):
            yield from cells


def result(case: Case, outcome: Outcome, healthy: Outcome) -> dict[str, object]:
    """What is written of a run."""
    line: dict[str, object] = {
        "case": case.key,
        "backend": case.backend,
        "dtype": case.dtype,
        "shape": case.shape,
        "code": outcome.code,
        "steps": outcome.steps,
        "seconds": round(outcome.seconds, 2),
        "text": outcome.error,
    }
    if case.fault:
        line |= {"fault": case.fault.name, "subject": case.fault.subject}
        line |= asdict(judge(case.fault, outcome, healthy))
        line |= {"used": outcome.used, "crashed": outcome.crashed}
    return line


def main() -> int:
    """Run cases, print a line each, and write results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="pattern of the names of cases")
    parser.add_argument(
        "--turn",
        help="any text: it chooses a tenth of the faults, each with one engine and precision, and "
        "a sixth of the healthy shapes",
    )
    parser.add_argument("--faults", action="store_true", help="faults alone")
    parser.add_argument("--healthy", action="store_true", help="healthy shapes alone")
    parser.add_argument("--warm-steps", type=int, default=500, help="steps the model learns for")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="working folder, kept")
    parser.add_argument("--out", type=Path, help="results as JSON lines")
    given = parser.parse_args()
    process.warm()
    load()
    bench = Bench((given.folder or Path(tempfile.mkdtemp(prefix="chaos-"))).resolve())
    bench.prepare(steps=given.warm_steps)
    cases = [] if given.faults else list(healthy_cases(given.turn))
    if not given.healthy:
        cases += fault_cases(given.turn)
    cases = [case for case in cases if re.search(given.only, case.key)]
    results = []
    for case, outcome, healthy in bench.run(cases, given.jobs):
        line = result(case, outcome, healthy)
        results.append(line)
        shown = f"{line.get('found', 'healthy')} {line.get('by', '')} @{line.get('step', '')}"
        shown += "" if outcome.used or not case.fault else "  NOT USED"
        shown += "  CRASH" if outcome.crashed else ""
        if not case.fault:
            shown = f"exit {outcome.code}, {outcome.steps} steps {outcome.error[:200]}"
        elif not line["changed"] and line["found"] == "missed":
            shown += "  NO EFFECT"
        print(f"{case.key:70} {shown}", flush=True)
    if given.out:
        given.out.write_text("".join(json.dumps(line) + "\n" for line in results))
    print(f"{len(results)} runs, {len(FAULTS)} faults\n\n{table(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
