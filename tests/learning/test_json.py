"""A tiny model learns to write JSON that fits a schema and says what a command asks for."""

import json
from pathlib import Path

import pytest

CONFIG = Path(__file__).parents[2] / "examples" / "json.yaml"


@pytest.mark.slow
def test_a_tiny_model_learns_to_answer_commands_with_json(rlvr, tmp_path):
    """A seed that was not used to find the recipe."""
    options = ["--set", "run.seed=11", "--set", "model.path=tiny:core/commands?seed=11"]
    cache = tmp_path / "cache"
    rlvr("run", CONFIG, "--display", "none", *options, cwd=tmp_path, cache=cache)
    shown = json.loads(rlvr("show", "last", "--json", cwd=tmp_path, cache=cache))
    assert shown["heldout"]["before"] <= 0.4
    assert shown["heldout"]["after"] >= 0.8
    assert shown["ledger"]["balanced"] is True
    assert shown["parity"]["max"] < 1e-3

    (run,) = (tmp_path / "runs").iterdir()
    groups = [json.loads(s) for s in (run / "traces" / "rollouts.jsonl").read_text().splitlines()]
    rows = [row for group in groups for row in group["completions"]]
    details = {row["verdicts"]["core/json"]["detail"] for row in rows}
    assert any("is not of type 'integer'" in detail for detail in details)
    assert any("not JSON" in detail or "no JSON" in detail for detail in details)
