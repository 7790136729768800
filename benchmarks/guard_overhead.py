"""What the default guards cost: seconds of guards beside those of the steps, in one run.

    python benchmarks/guard_overhead.py [--quick] [--steps 100] [--model FOLDER] [--dtype bfloat16]

Every method of every guard is timed while a run goes on, and the run's own time is what is left.
Hooks in the backward pass are timed likewise. The first step is compared with the median of later
ones.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONFIG = """
run: {{name: overhead}}
model: {{path: '{model}', dtype: {dtype}}}
data: {{sources: [{{use: math/arithmetic, with: {{split: train}}}}]}}
sampler: {{use: core/shuffle, with: {{refill: 0}}}}
sampling: {{n: 8, max_tokens: 44}}
engine: core/transformers
loss: {{use: core/grpo, with: {{beta: 0.01}}}}
train: {{steps: {steps}, prompts_per_step: 32, lr: 7.0e-4, warmup_steps: 5}}
"""
METHODS = (
    *("run_started", "on_groups", "on_step", "report", "state_dict", "step_begins"),
    *("loss_computed", "update_begins", "update_ended", "weights_loaded", "step_ends"),
)


class Clock:
    """Seconds by guard and step."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self.step = 0

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method with its time counted."""

        def method(*given: Any, **more: Any) -> Any:
            begun = time.perf_counter()
            try:
                return call(*given, **more)
            finally:
                self.seconds[name][self.step] += time.perf_counter() - begun

        return method


def measure(arguments: argparse.Namespace) -> None:
    """Make the run, and print the table."""
    from rlvr_core.cli.main import main
    from rlvr_core.guards import optimizer
    from rlvr_core.run import events, session

    clock, build = Clock(), events.build_guards

    def built(resolved: Any) -> Any:
        guards = build(resolved)
        for name, guard in guards.guards.items():
            for method in METHODS:
                if hasattr(guard, method):
                    setattr(guard, method, clock.timed(name, getattr(guard, method)))
        return guards

    import rlvr_core.run.build as run_build

    run_build.build_guards = built
    keep = optimizer.Watched.keep
    optimizer.Watched.keep = clock.timed("core/optimizer", keep)  # type: ignore[method-assign]
    one_step, took = session.Session.one_step, list[float]()

    def step(own: Any) -> None:
        begun, clock.step = time.perf_counter(), own.step
        one_step(own)
        took.append(time.perf_counter() - begun)

    session.Session.one_step = step  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "run.yaml")
        file.write_text(CONFIG.format(**vars(arguments)))
        code = main(["run", str(file), "--set", f"run.dir={folder}", "--display", "none"])
    if code:
        sys.exit(code)
    report(clock, took)


def report(clock: Clock, took: list[float]) -> None:
    """Print what each guard took of the steps' own time."""
    n = len(took)
    total = {name: sum(steps[k] for k in range(n)) for name, steps in clock.seconds.items()}
    guards = sum(total.values())
    own = sum(took) - guards
    print(f"{n} steps, {sum(took):.1f} s; guards {guards:.2f} s = {guards / own:.2%} of the rest")
    later = statistics.median(took[n // 2 :])
    first = sum(steps[0] for steps in clock.seconds.values())
    print(f"first step {took[0]:.3f} s ({first:.3f} s of guards), later {later:.3f} s")
    print(f"first / later: {took[0] / later:.2f}")
    print(f"\n{'guard':20} {'first step':>10} {'later, mean':>12} {'share':>7}")
    for name, seconds in sorted(total.items(), key=lambda pair: -pair[1]):
        steps = clock.seconds[name]
        mean = (seconds - steps[0]) / max(1, n - 1)
        print(f"{name:20} {steps[0] * 1e3:8.1f} ms {mean * 1e3:9.2f} ms {seconds / own:7.2%}")
    print(json.dumps({"ratio": guards / own, "first": took[0] / later}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="six steps")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--model", default="tiny:math/arithmetic")
    parser.add_argument("--dtype", default="float32")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.steps = 6
    measure(arguments)
