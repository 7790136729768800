"""Run the chaos suite, or a part of it, and write its page; ``--help`` shows how."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
import zlib
from dataclasses import asdict
from pathlib import Path

from chaos import process
from chaos.cases import Bench, Case
from chaos.cells import measured, read
from chaos.outcome import judge
from chaos.page import write
from chaos.random_shapes import random_shapes
from chaos.registry import load
from chaos.shapes import SHAPES


def number(turn: str, name: str) -> int:
    """A number that looks drawn, the same for the same turn and name."""
    return zlib.crc32(f"{turn} {name}".encode())


def chosen(turn: str | None, name: str, of: int) -> bool:
    """Whether it is the turn of a fault or shape: of one in so many; of all without a turn."""
    return not turn or number(turn, name) % of == 0


def main() -> int:
    """Run cases, print a line each, and write results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="pattern of the names of cases")
    parser.add_argument(
        "--turn",
        help="any text: it chooses a twentieth of the faults, each with one engine and precision, "
        "and a sixth of the healthy shapes",
    )
    parser.add_argument("--faults", action="store_true", help="faults beside healthy shapes")
    parser.add_argument(
        "--warm-steps", type=int, default=500, help="steps in which the model learns"
    )
    parser.add_argument("--backends", default="in process,child", help="which engines")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--healthy", action="store_true", help="healthy shapes, no faults")
    parser.add_argument("--healthy-backends", default="in process", help="which engines of these")
    parser.add_argument(
        "--random", type=int, default=0, help="so many healthy shapes more, nobody's choice"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random shapes")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="working folder, kept")
    parser.add_argument("--page", type=Path, help="the page to update: other cells are kept")
    parser.add_argument("--read", type=Path, nargs="*", default=[], help="results to add, not run")
    parser.add_argument("--out", type=Path, help="results as JSON lines")
    given = parser.parse_args()
    backends, dtypes = given.backends.split(","), given.dtypes.split(",")
    began = time.monotonic()
    process.warm(vllm="vllm" in backends)
    faults = list(load())
    folder = given.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    random_ones = random_shapes(given.random, given.seed)
    bench = Bench(folder, {**SHAPES, **random_ones})
    bench.prepare(wide="vllm" in (*backends, given.healthy_backends), steps=given.warm_steps)
    healthy = [
        Case(backend, dtype, shape, resume=shape == "resumed")
        for backend in given.healthy_backends.split(",")
        for shape in {**(SHAPES if given.healthy else {}), **random_ones}
        if shape in random_ones or chosen(given.turn, shape, 6)
        for dtype in dtypes
    ]
    cases = healthy
    if given.faults or not (given.healthy or random_ones):
        for fault in faults:
            cells = [
                Case(backend, dtype, fault.shape, fault, fault.resume)
                for backend in fault.backends
                for dtype in fault.dtypes
                if backend in backends and dtype in dtypes
            ]
            if given.turn and cells:
                # one cell for a shape, so that few healthy runs have to be made beside
                cells = [cells[number(given.turn, f"cell of {fault.shape}") % len(cells)]]
            cases = [*cases, *(cells if chosen(given.turn, fault.name, 20) else [])]
    cases = [case for case in cases if re.search(given.only, case.key)]
    results = []
    for case, outcome, healthy in bench.run(cases, given.jobs):
        line = {
            "case": case.key,
            "backend": case.backend,
            "dtype": case.dtype,
            "shape": case.shape,
            "code": outcome.code,
            "seconds": round(outcome.seconds, 2),
        }
        if case.fault:
            verdict = judge(case.fault, outcome, healthy)
            line |= asdict(verdict) | {"used": outcome.used, "crashed": outcome.crashed}
            line |= {"fault": case.fault.name, "cls": case.fault.cls}
            name = ("RIGHT" if verdict.right else "wrong") if verdict.by else ""
            shown = f"{verdict.found} {verdict.by} @{verdict.step} {name}"
            if not verdict.changed and verdict.found == "missed":
                shown += "  NO EFFECT"
            shown += "" if outcome.used else "  NOT USED"
            shown += "  CRASH" if outcome.crashed else ""
        else:
            line |= {"said": outcome.said, "steps": outcome.steps}
            shown = f"exit {outcome.code}, {outcome.steps} steps {outcome.said[:200]}"
        results.append(line)
        print(f"{case.key:70} {shown}", flush=True)
    if given.page:
        earlier = [json.loads(x) for path in given.read for x in path.read_text().splitlines()]
        every = list({x["case"]: x for x in (*earlier, *results)}.values())
        cells = read(given.page) | measured(x for x in every if "fault" in x)
        write(given.page, faults, cells, [x for x in every if "fault" not in x])
    if given.out:
        given.out.write_text("".join(json.dumps(line) + "\n" for line in results))
    print(f"{len(results)} runs in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
