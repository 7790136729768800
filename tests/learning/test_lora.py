"""The tiny task is learned by adapters alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "lora.yaml"


@pytest.mark.slow
def test_adapters_learn_the_tiny_task(tmp_path):
    """Seeds of run and model that were not used to find the recipe."""

    def rlvr(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "rlvr_core.cli.main", *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"RLVR_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    settings = {
        "run.seed": 11,
        "model.path": "tiny:math/arithmetic?seed=11",
        "eval.tasks": "[math/arithmetic-heldout]",
    }
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    rlvr("run", EXAMPLE, "--display", "none", *options)
    heldout = json.loads(rlvr("show", "last", "--json"))["heldout"]
    assert heldout["n"] >= 256
    assert heldout["before"] <= 0.40
    assert heldout["after"] >= 0.80
