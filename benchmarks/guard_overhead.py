"""What each guard costs: the time of the same steps with it alone, and with all, against none.

Guards change no token and no weight, so all runs make the same steps. They run in turns, and what
is compared is the time in steps, as `rlvr show` has it.

    python benchmarks/guard_overhead.py [--size 10M] [--steps 30] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

RLVR = [sys.executable, "-m", "rlvr_core.cli.main"]
GUARDS = (
    *("parity", "calibration", "advantages", "rewards", "loss", "updates", "optimizer", "kl"),
    *("tokens", "sync", "seeds", "watchdog"),
)
"""Guards that work in each step; ``resume`` works at checkpoints."""


def config(on: set[str], model: Path, steps: int) -> Mapping[str, object]:
    """Return a run with these guards."""
    guards: dict[str, object] = {name: False for name in GUARDS if name not in on}
    return {
        "run": {"name": "overhead", "seed": 1},
        "model": {"path": str(model)},
        "data": {"sources": [{"use": "math/arithmetic", "with": {"split": "train"}}]},
        "sampling": {"n": 8, "max_tokens": 44},
        "engine": "core/transformers",
        "loss": {"use": "core/grpo", "with": {"beta": 0.02}},
        "train": {"steps": steps, "prompts_per_step": 16, "lr": 1e-4},
        "checkpoint": {"every": 0},
        "guards": guards,
    }


def seconds(on: set[str], model: Path, steps: int, folder: Path) -> float:
    """Make a run and return its time in steps."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config(on, model, steps)))
    (folder / "config.json").rename(folder / "config.yaml")  # JSON is YAML
    subprocess.run([*RLVR, "run", "config.yaml", "--display", "none"], cwd=folder, check=True)
    shown = subprocess.run(
        [*RLVR, "show", "last", "--json"], cwd=folder, check=True, capture_output=True
    ).stdout
    return float(json.loads(shown)["step_seconds"])


def main() -> None:
    """Print a line for each guard."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="10M")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="overhead-"))
    model = folder / "model"
    make = [*RLVR, "tiny-model", str(model), "--task", "math/arithmetic", "--size", given.size]
    subprocess.run([*make, "--steps", "60"], check=True, capture_output=True)
    cases: dict[str, set[str]] = {"none": set(), "all": set(GUARDS)}
    cases |= {name: {name} for name in GUARDS}
    times: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(given.rounds):
        for name, on in cases.items():
            where = folder / f"{name}-{number}"
            times[name].append(seconds(on, model, given.steps, where))
    none = statistics.median(times["none"])
    print(f"none: {none:.2f} s, from {min(times['none']):.2f} to {max(times['none']):.2f}")
    for name, found in times.items():
        ratios = sorted(one / base for one, base in zip(found, times["none"], strict=True))
        middle = statistics.median(ratios)
        print(f"{name:12} {middle - 1:+.1%}  ({ratios[0] - 1:+.1%} to {ratios[-1] - 1:+.1%})")


if __name__ == "__main__":
    main()
