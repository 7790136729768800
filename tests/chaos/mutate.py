"""Change the code of a step by rule, one place at a time, and see which changes a guard stops.

    python tests/chaos/mutate.py --folder build/mutants --count 100 --out build/mutants.jsonl

The first call runs every healthy shape to see which lines it comes by, in some ten minutes.
``--ground child`` and ``--ground resume`` change what the engine's process comes by, and what saves
and restores a run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from chaos import process
from chaos.cases import Bench, Case
from chaos.mutants import GROUNDS, Ground, Lines, cover, few, mutants
from chaos.outcome import Outcome, differing
from chaos.registry import Fault
from chaos.shapes import SHAPES

STATES = (
    *("resumed", "base", "lora", "moving reference", "ema reference", "entropy steered", "muon"),
    *("groups read twice", "groups read thrice, ahead", "lora, ahead", "difficulty, few problems"),
    *("groups that grow", "curriculum of two phases", "two data sets by epochs", "two turns"),
    *("evaluated while it learns", "some verdicts are missing", "grpo and given answers"),
    "far ahead, four updates a step",
)
"""Shapes whose checkpoints hold different parts."""


def shapes_of(ground: Ground) -> list[str]:
    """Return the shapes whose runs may come by the lines of a ground."""
    if ground.resumed:
        return [*STATES]
    if ground.backend == "child":
        return ["base", *(name for name in SHAPES if _ahead(name) and _repeatable(name))]
    return [name for name in SHAPES if name != "resumed" and _repeatable(name)]


def _ahead(shape: str) -> bool:
    return "max_staleness" in SHAPES[shape].get("train", {})


def _repeatable(shape: str) -> bool:
    """Whether two runs are the same: not where requests or conversations go on at a sync."""
    in_flight = "in_flight" in SHAPES[shape].get("train", {})
    return not (in_flight or (_ahead(shape) and "environment" in SHAPES[shape]))


def case_of(ground: Ground, dtype: str, shape: str, fault: Fault) -> Case:
    """Return the run of a fault on a ground."""
    return Case(ground.backend, dtype, shape, fault, ground.resumed, ground.resumed)


def lines(bench: Bench, jobs: int, name: str) -> Lines:
    """Return the lines that each shape comes by; they are kept in the folder."""
    kept, ground = bench.folder / f"lines-{name}.json", GROUNDS[name]
    if not kept.exists():
        found = {}
        faults = [cover(shape, ground) for shape in shapes_of(ground)]
        cases = [case_of(ground, "float32", one.shape, one) for one in faults]
        for case, outcome in bench.each(cases, jobs):
            path = bench.path(case) / "lines"
            if path.exists() and outcome.code == 0:
                every = {tuple(json.loads(line)) for line in path.read_text().splitlines()}
                found[case.shape] = sorted(every)
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
    parser.add_argument(
        "--ground",
        default="step",
        choices=[*GROUNDS],
        help="what is changed: the step, with the engine in process; what generates ahead, with "
        "the engine in a process of its own; or what saves and restores a run that is resumed",
    )
    parser.add_argument("--count", type=int, default=100, help="mutants, of all that there are")
    parser.add_argument("--seed", type=int, default=0, help="chooses among them")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="results as JSON lines, each as it comes")
    given = parser.parse_args()
    process.warm()
    bench = Bench(given.folder.resolve(), SHAPES)
    bench.prepare()
    ground = GROUNDS[given.ground]
    covered = few(lines(bench, given.jobs, given.ground))
    every = mutants(covered, given.seed, ground=ground)
    some = {
        mutant.name.replace("/", "|"): (mutant, shape) for mutant, shape in every[: given.count]
    }
    cases = [
        case_of(ground, given.dtype, shape, mutant.fault(shape)) for mutant, shape in some.values()
    ]
    tally: Counter[str] = Counter()
    if given.out:
        given.out.unlink(missing_ok=True)
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
        line = {"mutant": mutant.name, "shape": shape, "ground": given.ground}
        line |= {"dtype": given.dtype, "end": end}
        line |= {"was": mutant.was, "now": mutant.now, "changed": changed, "said": outcome.said}
        if given.out:
            with given.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
    print(f"{len(cases)} of {len(every)} mutants: {dict(tally)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
