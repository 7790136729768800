"""Generation while training runs against generation and training in turns: the same steps.

    python benchmarks/asynchronous.py [--case 0.8M:8x8x128 ...] [--rounds 3] [--steps 8]

Each side runs in fresh processes, in turn with the others, on as many cores: ``in turns`` computes
with all threads, the others with half of them in the trainer and half in the engine's process.
A step is the time from the end of one step to the end of the next; medians over all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from importlib.metadata import version
from pathlib import Path

from step_clock import cpu_seconds
from step_task import Case, prompts
from step_turns import Steps, in_turns

CASES = [
    Case("0.8M", 8, 8, 32),
    Case("0.8M", 8, 8, 128),
    Case("0.8M", 32, 16, 32),
    Case("0.8M", 8, 8, 128, natural=True),
]
SIDES: dict[str, list[str]] = {
    "in turns": [],
    "drain, 1": ["train.max_staleness=1"],
    "keep, 1": ["train.max_staleness=1", "train.in_flight=keep"],
    "keep, 2": ["train.max_staleness=2", "train.in_flight=keep"],
}


def main() -> None:
    """Run the table, or one side in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--case", action="append", type=Case.parse, help="SIZE:PROMPTSxGROUPxTOKENS"
    )
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side")
    parser.add_argument("--steps", type=int, default=8, help="measured steps of a process")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before those")
    parser.add_argument("--threads", type=int, default=2, help="torch threads of either side")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = options.case or CASES
    if options.side:
        print(json.dumps(_one_side(cases[0], options)))
        return
    print(
        f"torch {version('torch')}, {options.threads} threads, {options.rounds} rounds of "
        f"{options.steps} steps after {options.warm_up}\n"
    )
    columns = ["case", "side", "wall s", "CPU s", "mean staleness", "speed-up"]
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|", flush=True)
    for case in cases:
        _print(case, in_turns(__file__, SIDES, case, options.rounds, options))


def _one_side(case: Case, options: argparse.Namespace) -> Steps:
    """Train, and note wall and CPU time at the end of each step."""
    import torch
    from step_ours import CONFIG, TOKENS_PER_MICRO_BATCH

    from rlvr_core.api import StepFinished
    from rlvr_core.cli.run import Silent
    from rlvr_core.config.resolve import resolve_file
    from rlvr_core.plugins.host import load_host
    from rlvr_core.plugins.registry import Entry
    from rlvr_core.run.build import build

    settings = SIDES[options.side]
    torch.set_num_threads(options.threads if not settings else max(1, options.threads // 2))
    ends: Steps = []

    class Timed(Silent):
        def step_finished(self, event: StepFinished) -> None:
            metrics = event.metrics
            assert case.natural or metrics["rows"] == case.completions, metrics
            age = metrics.get("staleness/mean", 0.0)
            ends.append({"wall": time.perf_counter(), "cpu": cpu_seconds(), "staleness": age})

    folder, steps = options.folder, options.warm_up + options.steps
    # as many problems as there are draws, so that every side has a full batch
    rows = [json.dumps({"prompt": text}) for text in prompts(case.prompts * 4)]
    (folder / "prompts.jsonl").write_text("\n".join(rows))
    (folder / "config.yaml").write_text(
        CONFIG.format(folder=folder, case=case, steps=steps, budget=TOKENS_PER_MICRO_BATCH)
    )
    host = load_host()
    host.registry.add(Entry("verifier", "bench/digits", "step_ours:Digits", "", "bench"))
    resolved = resolve_file(folder / "config.yaml", settings, host)
    command = ["benchmarks/asynchronous.py"]
    with build(resolved, lambda: str(folder), Timed(), command=command) as session:
        assert session is not None
        session.run(resolved.dump())
    return [
        {
            "wall": after["wall"] - before["wall"],
            "cpu": after["cpu"] - before["cpu"],
            "staleness": after["staleness"],
        }
        for before, after in zip(ends[options.warm_up - 1 :], ends[options.warm_up :], strict=False)
    ]


def _print(case: Case, steps: dict[str, Steps]) -> None:
    middle = {
        side: {key: statistics.median(step[key] for step in found) for key in found[0]}
        for side, found in steps.items()
    }
    for side, values in middle.items():
        shown = [
            f"{values['wall']:.3f}",
            f"{values['cpu']:.3f}",
            f"{values['staleness']:.2f}",
            f"{middle['in turns']['wall'] / values['wall']:.2f}x",
        ]
        print(f"| {case} | {side} | " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
