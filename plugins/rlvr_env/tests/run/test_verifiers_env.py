"""Runs on environments of the package verifiers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rlvr_core.record.jsonl import read_jsonl

TEMPLATE = "{% for m in messages %}{{ m.content }}<eos>{% endfor %}"
ENVS = Path(__file__).parents[1] / "bridges" / "envs"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["single", "guess"])
def test_a_run_takes_rows_turns_and_rewards_from_the_environment(lab, monkeypatch, kind):
    monkeypatch.setenv("PYTHONPATH", str(ENVS))
    model = shutil.copytree(lab.config["model"]["path"], lab.folder / "chat")
    config = model / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": TEMPLATE}))
    given = {"environment": "toy-envs", "arguments": {"kind": kind, "n": 8}}
    run = lab.run(
        model={"path": str(model)},
        data={"sources": [{"use": "env/verifiers", "with": given}]},
        train={"steps": 2, "prompts_per_step": 2},
        sampler={"use": "shuffle", "with": {"drop_zero_variance": False}},
        verify={"max_error_rate": 1.0},
        guards=[{"use": "guards/preflight", "off": True}, {"use": "core/idle", "off": True}],
    )
    rows = list(read_jsonl(run / "traces" / "rollouts.jsonl"))
    name, part = ("env/verifiers", "exact") if kind == "single" else ("env/environment", "few")
    verdicts = [one["verdicts"][name] for row in rows for one in row["completions"]]
    assert len(verdicts) >= 16  # two steps of two problems, four completions of each
    assert all(one["status"] == "ok" for one in verdicts)
    assert all(one["score"] == one["parts"][part] for one in verdicts)
    assert all(row["problem_id"].startswith("toy-envs_train_") for row in rows)
