"""A reward function of three lines teaches the tiny model: by YAML, and from a plain script."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HELDOUT = "math/arithmetic-heldout-greedy"


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(ROOT / "examples" / "reward_function", tmp_path / "examples" / "mine")
    shutil.copy(ROOT / "examples" / "quickstart.yaml", tmp_path / "examples")
    return tmp_path / "examples" / "mine"


def done(folder, *words):
    found = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def learned(folder):
    """Accuracy on held-out sums before the first step and after the last, of the only run."""
    (run,) = (folder / "runs").glob("[!.]*")
    assert json.loads((run / "run.json").read_text())["outcome"] == "finished"
    lines = (run / "evals" / "index.jsonl").read_text().splitlines()
    found = {one["step"]: one for one in map(json.loads, lines) if one["task"] == HELDOUT}
    return found[0]["metrics"]["accuracy"], found[50]["metrics"]["accuracy"]


@pytest.mark.slow
@pytest.mark.essential  # of all that learn, the one that takes the least time
@pytest.mark.timeout(1800)
def test_by_yaml(folder):
    done(folder, "-m", "rlvr_core.cli.main", "run", "config.yaml", "--set", "train.steps=50")
    before, after = learned(folder)
    assert after > before + 0.2


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_by_a_script_that_is_run_as_it_is(folder):
    script = folder / "train.py"
    script.write_text(script.read_text().replace("set={", 'set={"train.steps": 50, '))
    assert done(folder, "train.py").startswith("finished ")
    before, after = learned(folder)
    assert after > before + 0.2
