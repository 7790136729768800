"""What is learnt from groups one and two updates old, on the tiny task by the command line."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
STEPS = 90


@pytest.mark.slow
@pytest.mark.parametrize(("staleness", "in_flight"), [(1, "drain"), (2, "keep")])
def test_the_tiny_task_is_learnt_from_stale_groups(rlvr, tmp_path, cache_dir, staleness, in_flight):
    settings = {
        "train.steps": STEPS,
        "train.max_staleness": staleness,
        "train.in_flight": in_flight,
        "checkpoint.every": 0,
        "eval.tasks": "[math/arithmetic-heldout]",
        "run.dir": tmp_path,
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = ("run", "examples/quickstart.yaml", "--display", "none")
    rlvr(*command, *words, cwd=ROOT, cache=cache_dir)
    (run,) = tmp_path.iterdir()
    before, after = (
        json.loads(line)["metrics"]["accuracy"]
        for line in (run / "evals" / "index.jsonl").read_text().splitlines()
    )
    assert before < 0.35
    assert after >= 0.8
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(line["staleness/max"] <= staleness for line in metrics)
    assert sum(line["staleness/mean"] > 0 for line in metrics) > STEPS / 2
