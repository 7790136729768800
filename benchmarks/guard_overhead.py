"""What each guard costs, in processor time: of the same run, step by step, guard by guard.

Wall time on a machine with other jobs says nothing about a few percent. This counts the time that
the processor spends in this process (user time of all its threads), so other jobs do not count,
and counts it within one run: each method of each guard is timed as it is called, and what is left
of the step is the step without guards. Hooks in the backward pass are timed likewise. A forward
pass that several guards share stands in a row of its own.

The first steps, in which guards look at everything, stand apart from the later ones; of both the
share that a run of 100 steps pays is made. Each round is a run with another seed, so that
the least and the largest of the rounds say how far a figure can be trusted.

    python benchmarks/guard_overhead.py [--size 10M] [--steps 100] [--rounds 3]

``--size`` is that of a tiny model (0.2M, 0.8M, 10M), half trained, or 70M, of random weights.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FIRST = 8
"""Steps in which guards look at everything."""

METHODS = (
    *("run_started", "on_groups", "begin", "computed", "share", "judge", "updated", "end"),
    *("weights_loaded", "checkpoint_written"),
)
ALWAYS_ON = ("parity", "calibration", "own pass", "advantages", "updates", "kl", "tokens", "shared")
"""The invariants A to F, and what they have in common."""


Steps = Sequence[tuple[float, dict[str, float]]]
"""Of each step the time without guards, and that of each guard."""


class Clock:
    """Processor time by guard; what one calls in turn counts for the other alone."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self.steps: list[tuple[float, dict[str, float]]] = []
        self._stack: list[list[float]] = []
        self._began = 0.0

    def timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Count the calls of a method for a guard."""

        @functools.wraps(method)
        def call(*given: Any, **named: Any) -> Any:
            self._stack.append([0.0])
            began = time.process_time()
            try:
                return method(*given, **named)
            finally:
                whole = time.process_time() - began
                self.spent[name] += whole - self._stack.pop()[0]
                if self._stack:
                    self._stack[-1][0] += whole

        return call

    def begin(self) -> None:
        """The first step begins."""
        self._began = time.process_time()
        self.spent.clear()

    def step(self) -> None:
        """A step has ended."""
        now = time.process_time()
        spent = dict(self.spent)
        self.steps.append((now - self._began - sum(spent.values()), spent))
        self.begin()


def watched() -> Clock:
    """Time the guards of the runs of this process from here on."""
    from rlvr_core.builtin.invariants import invariants, samples
    from rlvr_core.builtin.invariants.check import Invariant
    from rlvr_core.builtin.invariants.moments import TokenScores
    from rlvr_core.run.events import Guards

    clock = Clock()
    for kind in vars(invariants).values():
        if isinstance(kind, type) and issubclass(kind, Invariant) and kind is not Invariant:
            for method in METHODS:
                if method in vars(kind):
                    setattr(kind, method, clock.timed(kind.id, vars(kind)[method]))
    for method in ("on_groups", "step_begins", "loss_computed", "update_begins", "update_ended"):
        kept = vars(invariants.Invariants)[method]
        setattr(invariants.Invariants, method, clock.timed("shared", kept))
    one: Any = TokenScores
    one.__call__ = clock.timed("own pass", one.__call__)
    arriving: Any = samples.Arriving
    keeper = arriving._keeper
    arriving._keeper = lambda self, number: clock.timed("optimizer", keeper(self, number))
    make, start, finish = Guards.__init__, Guards.run_started, Guards.step_finished

    def made(self: Any, guards: Any) -> None:
        for name, guard in guards.items():
            if not isinstance(guard, invariants.Invariants):
                for method in ("on_groups", "on_step"):
                    setattr(guard, method, clock.timed(name, getattr(guard, method)))
        make(self, guards)

    def started(self: Any, event: Any) -> None:
        clock.begin()
        start(self, event)

    def finished(self: Any, event: Any) -> None:
        finish(self, event)
        clock.step()

    patched: Any = Guards
    patched.__init__, patched.run_started, patched.step_finished = made, started, finished
    return clock


def config(model: Path, seed: int, given: argparse.Namespace) -> dict[str, object]:
    """Return a run with all guards that are on by default, and a KL."""
    prompts, n, tokens = (int(part) for part in given.batch.split("x"))
    return {
        "run": {"name": f"overhead-{seed}", "seed": seed},
        "model": {"path": str(model), "dtype": given.dtype},
        "data": {"sources": [{"use": "math/arithmetic", "with": {"split": "train"}}]},
        "sampling": {"n": n, "max_tokens": tokens},
        "engine": "core/transformers",
        "loss": {"use": "core/grpo", "with": {"beta": 0.02}},
        "train": {"steps": given.steps, "prompts_per_step": prompts, "lr": 1e-5},
        "checkpoint": {"every": 0},
        "guards": {"max_idle_steps": given.steps},
        "sampler": {"use": "shuffle", "with": {"drop_zero_variance": False}},
    }


def run(model: Path, seed: int, given: argparse.Namespace) -> Clock:
    """Make a run in this process."""
    from rlvr_core.cli.main import main as rlvr

    clock = watched()
    Path("config.yaml").write_text(json.dumps(config(model, seed, given)))  # JSON is YAML
    sys.argv = ["rlvr", "run", "config.yaml", "--display", "none"]
    code = 0
    try:
        code = int(rlvr() or 0)
    except SystemExit as end:
        code = int(end.code or 0)
    if code or len(clock.steps) != given.steps:
        raise SystemExit(f"the run ended with {code} after {len(clock.steps)} steps")
    return clock


def save_model(folder: Path, size: str) -> None:
    """Write a tiny model, or one of random weights of another shape with its tokenizer."""
    from rlvr_core.cli.main import main as rlvr

    tiny = "0.2M" if size == "70M" else size
    sys.argv = ["rlvr", "tiny-model", str(folder), "--task", "math/arithmetic", "--size", tiny]
    sys.argv += ["--steps", "60"]
    try:
        rlvr()
    except SystemExit as end:
        if end.code:
            raise
    if size == "70M":
        from transformers import AutoConfig, AutoModelForCausalLM

        changed = AutoConfig.from_pretrained(folder)
        changed.hidden_size, changed.intermediate_size = 768, 2048
        changed.num_hidden_layers, changed.num_attention_heads = 10, 12
        changed.num_key_value_heads, changed.head_dim = 6, 64
        changed.layer_types = ["full_attention"] * 10
        AutoModelForCausalLM.from_config(changed).save_pretrained(folder)


def forked(work: Callable[[], Any]) -> Any:
    """Return what a fork of this process found: each run begins with a process of its own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            found = json.dumps(work())
            with os.fdopen(writer, "w") as out:
                out.write(found)
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        text = lines.read()
    if os.waitpid(pid, 0)[1]:
        raise SystemExit("a run failed")
    return json.loads(text)


def means(steps: Steps, names: Sequence[str]) -> tuple[float, float]:
    """Return the mean time of steps without guards, and what guards add to it."""
    guards = statistics.mean(sum(spent.get(name, 0.0) for name in names) for _, spent in steps)
    return statistics.mean(step for step, _ in steps), guards


def shares(steps: Steps, names: Sequence[str]) -> tuple[float, float, float]:
    """Return what guards cost in the first steps, in later ones, and of 100 steps such as these."""
    first, later = means(steps[:FIRST], names), means(steps[FIRST:], names)
    bare, guards = (FIRST * a + (100 - FIRST) * b for a, b in zip(first, later, strict=True))
    return first[1] / first[0], later[1] / later[0], guards / bare


def report(rounds: Sequence[Steps]) -> str:
    """Return a table of the rounds."""
    names = sorted({name for steps in rounds for _, spent in steps for name in spent})
    rows: list[tuple[str, Sequence[str]]] = [("**all guards**", names)]
    rows.append(("**A to F**", ALWAYS_ON))
    rows += [(name, [name]) for name in names]
    first = statistics.median(step for steps in rounds for step, _ in steps[:FIRST])
    later = statistics.median(step for steps in rounds for step, _ in steps[FIRST:])
    lines = [
        f"A step without guards: {first:.3f} s, later {later:.3f} s of processor time.",
        "",
        f"| guard | steps 1 to {FIRST} | from step {FIRST + 1} | 100 steps | ms a later step |",
        "|---|---|---|---|---|",
    ]
    for shown, chosen in rows:
        cells = []
        for column in zip(*(shares(steps, chosen) for steps in rounds), strict=True):
            found = sorted(column)
            middle = statistics.median(found)
            cells.append(f"{middle:.2%} ({found[0]:.2%} to {found[-1]:.2%})")
        spent = [
            1e3 * sum(of.get(name, 0.0) for name in chosen)
            for steps in rounds
            for _, of in steps[FIRST:]
        ]
        cells.append(f"{statistics.mean(spent):.2f}")
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="10M", help="0.2M, 0.8M, 10M or 70M")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", default="16x8x44", help="prompts x completions x tokens")
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    if given.steps <= FIRST:
        parser.error(f"--steps must be more than {FIRST}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folder = Path(tempfile.mkdtemp(prefix="overhead-"))
    os.chdir(folder)
    model = folder / "model"
    forked(lambda: save_model(model, given.size))
    rounds = [
        forked(lambda seed=seed: run(model, seed, given).steps)
        for seed in range(1, given.rounds + 1)
    ]
    print(report(rounds))


if __name__ == "__main__":
    main()
