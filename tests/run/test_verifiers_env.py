"""Runs on environments of the package verifiers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ENVS = Path(__file__).parents[1] / "bridges" / "envs"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["single", "guess"])
def test_a_run_takes_rows_turns_and_rewards_from_the_environment(lab, monkeypatch, kind):
    monkeypatch.setenv("PYTHONPATH", str(ENVS))
    given = {"environment": "toy-envs", "arguments": {"kind": kind, "n": 8}}
    run = lab.run(
        data={
            "sources": [{"use": "core/verifiers", "with": given}],
            "prompt": {"format": "raw", "template": "{user}"},
        },
        train={"steps": 2, "prompts_per_step": 2},
        sampler={"use": "shuffle", "with": {"drop_zero_variance": False}},
        verify={"max_error_rate": 1.0},
        guards={"preflight": False, "max_idle_steps": 0},
    )
    lines = (run / "traces" / "rollouts.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    print(rows[0])
    assert rows
    assert all(row["problem_id"].startswith("toy-envs_train_") for row in rows)
