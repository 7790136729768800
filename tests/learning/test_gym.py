"""A tiny model learns a generator of reasoning-gym."""

import json
from pathlib import Path

import pytest

pytest.importorskip("rlvr_gym")
CONFIG = Path(__file__).parents[2] / "examples" / "gym.yaml"


@pytest.mark.slow
def test_a_tiny_model_learns_chain_sum(rlvr, tmp_path):
    """A seed that was not used to find the recipe."""
    options = ["--set", "run.seed=23", "--set", "model.path=tiny:gym/tiny?seed=23"]
    cache = tmp_path / "cache"
    rlvr("run", CONFIG, "--display", "none", *options, cwd=tmp_path, cache=cache, timeout=None)
    shown = json.loads(rlvr("show", "last", "--json", cwd=tmp_path, cache=cache))
    assert shown["heldout"]["before"] <= 0.35
    assert shown["heldout"]["after"] >= 0.5
    assert shown["ledger"]["balanced"] is True
    assert shown["parity"]["max"] < 1e-3

    (run,) = (tmp_path / "runs").iterdir()
    trained = (run / "traces" / "rollouts.jsonl").read_text().splitlines()
    asked = {json.loads(line)["problem_id"] for line in trained}
    held_out = {
        json.loads(line)["problem_id"]
        for path in (run / "evals").glob("gym_tiny*.jsonl")
        for line in path.read_text().splitlines()
    }
    assert held_out
    assert not asked & held_out
