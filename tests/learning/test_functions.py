"""A reward function of three lines teaches the tiny model: by YAML, and from a plain script."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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
