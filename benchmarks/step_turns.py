"""The sides of a benchmark, each in a fresh process, turn by turn."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from step_task import Case, write_model

Steps = list[dict[str, float]]


def in_turns(
    script: str, sides: Sequence[str], case: Case, rounds: int, options: argparse.Namespace
) -> dict[str, Steps]:
    """What every step of every side measured.

    Args:
        script: Which, asked for one side, prints its steps as JSON in its last line.
        sides: Their names, in the order of a round.
        case: What is trained.
        rounds: Processes of each side.
        options: ``steps``, ``warm_up`` and ``threads`` of one process.
    """
    steps: dict[str, Steps] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), case)
        for _ in range(rounds):
            for side in sides:
                command = [sys.executable, script, "--side", side, "--case", case.spec]
                command += ["--folder", folder, "--steps", str(options.steps)]
                command += ["--warm-up", str(options.warm_up)]
                command += ["--threads", str(options.threads)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    sys.exit(f"{case} {side} failed:\n{done.stderr[-3000:]}")
                steps[side] += json.loads(done.stdout.strip().splitlines()[-1])
    return dict(steps)
