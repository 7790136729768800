"""A whole training step of rlvr against TRL's GRPOTrainer: same model, task, batch, lengths.

    python benchmarks/step.py [--quick] [--case 0.8M:8x8x32 ...] [--threads N]

Each side runs in fresh processes of its own, in turn with the other; medians over the steps of
all of them, the first steps left out. Needs ``pip install rlvr-core[bench]``.

Sides: ``ours`` is the real loop of ``rlvr run`` with its transformers engine and verifier
processes; ``trl`` is GRPOTrainer in float32 without gradient checkpointing; ``trl-defaults``
leaves both on.
"""

from __future__ import annotations

import argparse
import json
import statistics
from importlib.metadata import version
from pathlib import Path

from step_clock import PHASES
from step_task import Case
from step_turns import Steps, in_turns

CASES = [
    Case(size, prompts, group, tokens)
    for size in ("0.8M", "10M")
    for prompts, group in ((8, 8), (32, 16))
    for tokens in (32, 128)
]
NATURAL = Case("0.8M", 8, 8, 128, natural=True)
QUICK = [Case("0.8M", 8, 8, 32), Case("0.8M", 8, 8, 128)]
SIDES = ("ours", "trl", "trl-defaults")


def main() -> None:
    """Run the table, or one side in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two small cases, one round")
    parser.add_argument(
        "--case", action="append", type=Case.parse, help="SIZE:PROMPTSxGROUPxTOKENS"
    )
    parser.add_argument("--rounds", type=int, help="processes of each side [default: 3]")
    parser.add_argument("--steps", type=int, default=4, help="measured steps of a process")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before those")
    parser.add_argument("--threads", type=int, default=2, help="torch threads of either side")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = options.case or (QUICK if options.quick else [*CASES, NATURAL])
    if options.side:
        print(json.dumps(_one_side(cases[0], options)))
        return
    rounds = options.rounds or (1 if options.quick else 3)
    print(
        f"torch {version('torch')}, transformers {version('transformers')}, "
        f"trl {version('trl')}, {options.threads} threads, {rounds} rounds of {options.steps} "
        f"steps after {options.warm_up} of warm-up\n"
    )
    print(HEADER, flush=True)
    for case in cases:
        print(_lines(case, in_turns(__file__, SIDES, case, rounds, options)), flush=True)


def _one_side(case: Case, options: argparse.Namespace) -> Steps:
    import torch

    torch.set_num_threads(options.threads)
    steps = options.warm_up + options.steps
    if options.side == "ours":
        import step_ours

        found = step_ours.run(case, options.folder, steps)
    else:
        import step_trl

        defaults = options.side == "trl-defaults"
        found = step_trl.run(case, options.folder, steps, defaults=defaults)
    return found[options.warm_up :]


COLUMNS = ["completions/s", "wall s", "CPU s", *PHASES, "other", "speed-up"]
HEADER = "\n".join(
    ["| case | side | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 2) + "|"]
)


def _lines(case: Case, steps: dict[str, Steps]) -> str:
    """The case's rows: wall seconds by phase; ours relative to each TRL."""
    middle = {side: _medians(found) for side, found in steps.items()}
    ours = middle["ours"]["wall"]
    lines = []
    for side, values in middle.items():
        phases = [values.get(phase, 0.0) for phase in PHASES]
        shown = [
            f"{case.completions / values['wall']:.1f}",
            f"{values['wall']:.3f}",
            f"{values['cpu']:.3f}",
            *(f"{seconds:.3f}" for seconds in phases),
            f"{max(0.0, values['wall'] - sum(phases)):.3f}",
            f"{values['wall'] / ours:.2f}x" if side.startswith("trl") else "",
        ]
        lines.append(f"| {case} | {side} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _medians(steps: Steps) -> dict[str, float]:
    keys = {key for step in steps for key in step}
    return {key: statistics.median(step.get(key, 0.0) for step in steps) for key in keys}


if __name__ == "__main__":
    main()
