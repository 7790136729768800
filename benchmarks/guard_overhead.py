"""What each guard costs: processor time, step by step, within one run.

Every method of every guard of a run is timed as it is called; what is left of a step is the step
without guards. Processor time of this process counts, so that other jobs do not. Passes that
guards make inside the step's own backward pass are not seen here.

    python benchmarks/guard_overhead.py [--quick] [--size 10M] [--steps 60]
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIRST = 8
"""Steps in which guards look closer than later."""


class Clock:
    """Processor time by guard; what one calls in turn counts for the other alone."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self.steps: list[tuple[float, dict[str, float]]] = []
        self._inner: list[float] = []
        self._began = 0.0

    def timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Count the calls of a method for a guard."""

        @functools.wraps(method)
        def call(*args: Any, **options: Any) -> Any:
            self._inner.append(0.0)
            began = time.process_time()
            try:
                return method(*args, **options)
            finally:
                whole = time.process_time() - began
                self.spent[name] += whole - self._inner.pop()
                if self._inner:
                    self._inner[-1] += whole

        return call

    def begin(self) -> None:
        """A step begins."""
        self._began = time.process_time()
        self.spent.clear()

    def end(self) -> None:
        """A step has ended."""
        spent = dict(self.spent)
        self.steps.append((time.process_time() - self._began - sum(spent.values()), spent))
        self.begin()


def watch() -> Clock:
    """Time the guards of the runs of this process from here on."""
    from rlvr_core.run.events import Guards

    clock = Clock()
    make, start, finish = Guards.__init__, Guards.run_started, Guards.step_finished

    def made(self: Any, guards: Any, *args: Any, **options: Any) -> None:
        for name, guard in guards.items():
            for method in dir(type(guard)):
                if not method.startswith("_") and callable(getattr(type(guard), method)):
                    setattr(guard, method, clock.timed(name, getattr(guard, method)))
        make(self, guards, *args, **options)

    def started(self: Any, event: Any) -> None:
        start(self, event)
        clock.begin()

    def finished(self: Any, event: Any) -> None:
        finish(self, event)
        clock.end()

    patched: Any = Guards
    patched.__init__, patched.run_started, patched.step_finished = made, started, finished
    return clock


def run(folder: Path, size: str, steps: int, batch: str) -> Clock:
    """Train a tiny model with all guards that are on by default, and a KL term."""
    from rlvr_core.cli.main import main as rlvr

    model = folder / "model"
    tiny = ["tiny-model", str(model), "--task", "math/arithmetic", "--size", size, "--steps", "60"]
    prompts, n, tokens = (int(part) for part in batch.split("x"))
    config = {
        "run": {"name": "overhead", "dir": str(folder / "runs"), "seed": 1},
        "model": {"path": str(model)},
        "data": {"sources": [{"use": "math/arithmetic", "with": {"split": "train"}}]},
        "sampling": {"n": n, "max_tokens": tokens},
        "engine": "core/transformers",
        "loss": {"use": "core/grpo", "with": {"beta": 0.02}},
        "train": {"steps": steps, "prompts_per_step": prompts, "lr": 1e-5},
        "sampler": {"use": "shuffle", "with": {"drop_zero_variance": False}},
        "checkpoint": {"every": 0},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    clock = watch()
    for words in (tiny, ["run", str(path), "--display", "none"]):
        sys.argv = ["rlvr", *words]
        if code := rlvr():
            raise SystemExit(f"rlvr {words[0]} ended with {code}")
    return clock


def report(clock: Clock) -> str:
    """A table: of the first steps and the later ones, what each guard adds to a step."""
    first, later = clock.steps[:FIRST], clock.steps[FIRST:]
    names = sorted({name for _, spent in clock.steps for name in spent})
    lines = [
        f"A step without guards: {statistics.median(step for step, _ in later):.3f} s",
        "",
        f"| guard | first {FIRST} steps | later steps | ms in a later step |",
        "|---|---|---|---|",
    ]
    for label, chosen in (("**all**", names), *((name, [name]) for name in names)):
        cells = []
        for steps in (first, later):
            bare = sum(step for step, _ in steps)
            added = sum(spent.get(name, 0.0) for _, spent in steps for name in chosen)
            cells.append(f"{added / bare:.2%}")
        lines.append(f"| {label} | {' | '.join(cells)} | {1e3 * added / len(later):.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small model, few steps")
    parser.add_argument("--size", default="10M", help="0.2M, 0.8M or 10M")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", default="16x8x44", help="prompts x completions x tokens")
    given = parser.parse_args()
    size, steps, batch = given.size, given.steps, given.batch
    if given.quick:
        size, steps, batch = "0.2M", FIRST + 4, "4x4x16"
    if steps <= FIRST:
        parser.error(f"--steps must be more than {FIRST}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="overhead-") as name:
        print(report(run(Path(name), size, steps, batch)))


if __name__ == "__main__":
    main()
