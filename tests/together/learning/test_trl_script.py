"""examples/trl_script: TRL's trainer and the run moved over learn the same task equally well."""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

EXAMPLE = Path(__file__).parents[3] / "examples" / "trl_script"
SEEDS = (0, 1, 2)
T_975_OF_4 = 2.776  # Student's t for three and three runs: 4 degrees of freedom
RLVR = ["-m", "rlvr_core.cli.main"]


def python(*words, cwd):
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accuracy(model, folder):
    """Of samples on the held-out sums, by the same command for both."""
    out = f"eval-{model.parent.parent.name}-{model.name}"
    words = ["eval", model, "--task", "math/arithmetic-heldout", "--out", out, "--json"]
    told = json.loads(python(*RLVR, *words, cwd=folder))
    (task,) = told["tasks"].values()
    assert task["n_problems"] >= 256
    return task["metrics"]["accuracy"]["value"]


def test_both_learn_the_sums_equally_well(tmp_path):
    pytest.importorskip("trl")
    folder = tmp_path / "trl_script"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    model = folder / "model"
    python(*RLVR, "tiny-model", model, "--task", "math/arithmetic", cwd=folder)
    theirs, ours = [], []
    for seed in SEEDS:
        python("trl_script.py", model, f"trl-{seed}", seed, cwd=folder)
        theirs.append(accuracy(folder / f"trl-{seed}", folder))
        options = [
            f"model.path={model}",
            f"run.seed={seed}",
            f"run.name=ours-{seed}",
            "eval.tasks=[]",
        ]
        words = [word for one in options for word in ("--set", one)]
        python(*RLVR, "run", "config.yaml", "--display", "none", *words, cwd=folder)
        (checkpoint,) = folder.glob(f"runs/ours-{seed}-*/checkpoints/step*")
        ours.append(accuracy(checkpoint, folder))
    before = accuracy(model, folder)
    print(f"before {before}, trl {theirs}, ours {ours}")
    assert before < 0.4
    assert min(*theirs, *ours) > before + 0.2
    pooled = (statistics.variance(theirs) + statistics.variance(ours)) / 2
    difference = statistics.mean(ours) - statistics.mean(theirs)
    # of the runs' own scatter, and of 256 answers of each run
    sampling = 2 * 0.25 / (256 * len(SEEDS))
    assert abs(difference) <= T_975_OF_4 * math.sqrt(2 * pooled / len(SEEDS) + sampling)
