"""What it costs a run to look for secrets in all that it records and prints.

    OMP_NUM_THREADS=1 python benchmarks/redaction.py --pairs 4

Runs the same small run with and without the search, in turns: seconds of CPU of the process that
trains, and of its threads, from its start to its end. In the runs with the search, the seconds
inside it are measured too, which the noise of a busy machine does not touch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CONFIG = """\
run: {name: cost, dir: runs, seed: 1}
model: {path: "tiny:math/arithmetic"}
data: {sources: [{use: math/arithmetic, with: {split: train}}]}
sampling: {n: 8, max_tokens: 44}
engine: core/transformers
loss: core/dapo
train: {steps: STEPS, prompts_per_step: 32, lr: 7.0e-4}
"""

INSIDE = """\
import json, sys, threading, time
from rlvr_core.record.text import Redactor

spent = {"inside": 0.0, "calls": 0, "characters": 0}
lock, open_ = threading.Lock(), threading.local()


def timed(name):
    real = getattr(Redactor, name)

    def call(self, value, *more, **named):
        if getattr(open_, "deep", False):
            return real(self, value, *more, **named)
        open_.deep, begun = True, time.thread_time()
        try:
            return real(self, value, *more, **named)
        finally:
            open_.deep = False
            with lock:
                spent["inside"] += time.thread_time() - begun
                spent["calls"] += 1
                spent["characters"] += len(value) if isinstance(value, str) else 0

    def same(self, value, *more, **named):
        return value

    setattr(Redactor, name, same if sys.argv[1] == "without" else call)


made = Redactor.__init__


def construct(self, *given):
    begun = time.thread_time()
    made(self, *given)
    spent["inside"] += time.thread_time() - begun


Redactor.__init__ = construct
for name in ("text", "patch", "tree", "command", "known"):
    timed(name)
from rlvr_core.cli.main import main

out, sys.argv = sys.argv[2], ["rlvr", "run", "config.yaml", "--display", "plain"]
code = 0
try:
    code = main()
except SystemExit as end:
    code = end.code
spent |= {"cpu": time.process_time(), "code": code}
open(out, "w").write(json.dumps(spent))
"""


def run(folder: Path, how: str) -> dict[str, float]:
    """Run once; return what it measured."""
    out = folder / "out.json"
    done = subprocess.run(
        [sys.executable, str(folder / "inside.py"), how, str(out)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if not out.exists():
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    found: dict[str, float] = json.loads(out.read_text())
    out.unlink()
    if found["code"]:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    return found


def main() -> None:
    """Print both measures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args()
    shares, ratios = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(CONFIG.replace("STEPS", str(given.steps)))
        (folder / "inside.py").write_text(INSIDE)
        run(folder, "with")  # makes the tiny model, and fills caches
        for pair in range(given.pairs):
            turns = ("with", "without") if pair % 2 else ("without", "with")
            found = {how: run(folder, how) for how in turns}
            one, other = found["with"], found["without"]
            shares.append(one["inside"] / one["cpu"])
            ratios.append(one["cpu"] / other["cpu"])
            sys.stdout.write(
                f"pair {pair}: {one['cpu']:.2f} s with, {other['cpu']:.2f} s without, "
                f"{1000 * one['inside']:.1f} ms inside in {one['calls']} calls\n"
            )
            sys.stdout.flush()
    sys.stdout.write(
        f"inside: {statistics.median(shares):.4%} of the CPU time "
        f"({min(shares):.4%} to {max(shares):.4%}); with / without: "
        f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}), "
        f"n = {len(ratios)}\n"
    )


if __name__ == "__main__":
    main()
