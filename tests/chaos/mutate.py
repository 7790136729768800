"""Change the code of a step by rule, one place at a time, and see which changes a guard stops.

    python tests/chaos/mutate.py --folder build/mutants --count 100 --out build/mutants.jsonl

The first call runs every healthy shape to see which lines it comes by, in some ten minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from chaos import process
from chaos.cases import Bench, Case
from chaos.mutants import Lines, cover, few, mutants
from chaos.outcome import Outcome, differing
from chaos.shapes import SHAPES


def lines(bench: Bench, jobs: int) -> Lines:
    """Return the lines that each shape comes by; they are kept in the folder."""
    kept = bench.folder / "lines.json"
    if not kept.exists():
        faults = [cover(shape) for shape in SHAPES if shape != "resumed"]
        found = {}
        for case, _, _ in bench.run(
            [Case("in process", "float32", x.shape, x) for x in faults], jobs
        ):
            path = bench.path(case) / "lines"
            if path.exists():
                found[case.shape] = json.loads(path.read_text())
        kept.write_text(json.dumps(found))
    found = json.loads(kept.read_text())
    return {shape: [(path, line) for path, line in every] for shape, every in found.items()}


def ended(outcome: Outcome, healthy: Outcome) -> str:
    """Say what came of a mutant: ``same`` if nothing that is recorded of a run has changed."""
    if outcome.code is None:
        return "hang"
    if outcome.crashed:
        return "crash"
    if outcome.code:
        return "guard" if "guard " in outcome.said else "message"
    return "missed" if differing(outcome, healthy) else "same"


def main() -> int:
    """Run mutants, print a line each, and write results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="working folder, kept")
    parser.add_argument("--count", type=int, default=100, help="mutants, of all that there are")
    parser.add_argument("--seed", type=int, default=0, help="chooses among them")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="results as JSON lines")
    given = parser.parse_args()
    process.warm()
    bench = Bench(given.folder, SHAPES)
    bench.prepare()
    every = mutants(few(lines(bench, given.jobs)), given.seed)
    some = {
        mutant.name.replace("/", "|"): (mutant, shape) for mutant, shape in every[: given.count]
    }
    cases = [
        Case("in process", given.dtype, shape, mutant.fault(shape))
        for mutant, shape in some.values()
    ]
    tally: Counter[str] = Counter()
    results = []
    for case, outcome, healthy in bench.run(cases, given.jobs):
        assert case.fault is not None
        mutant, shape = some[case.fault.name]
        end = ended(outcome, healthy)
        tally[end] += 1
        changed = differing(outcome, healthy)
        print(f"{end:8} {mutant.name}  [{shape}]  {outcome.said[:80]!r}", flush=True)
        if end == "missed":
            print(
                f"  was {mutant.was}\n  now {mutant.now}\n  changed {', '.join(changed)}",
                flush=True,
            )
        line = {"mutant": mutant.name, "shape": shape, "dtype": given.dtype, "end": end}
        line |= {"was": mutant.was, "now": mutant.now, "changed": changed, "said": outcome.said}
        results.append(line)
    if given.out:
        given.out.write_text("".join(json.dumps(line) + "\n" for line in results))
    print(f"{len(cases)} of {len(every)} mutants: {dict(tally)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
