"""A tiny model is trained by an agent program that knows OpenAI's client alone."""

import json
import shutil
from pathlib import Path
from statistics import fmean

import pytest

from rlvr_core.record.jsonl import read_jsonl

EXAMPLE = Path(__file__).parents[3] / "examples" / "agent"


@pytest.mark.slow
def test_an_agent_program_is_trained_by_what_it_asks_and_its_tokens_are_exact(
    rlvr, tmp_path, cache_dir
):
    for name in ("agent.py", "config.yaml"):
        shutil.copy(EXAMPLE / name, tmp_path)
    rlvr("run", "config.yaml", "--display", "none", cwd=tmp_path, cache=cache_dir)
    (run,) = (tmp_path / "runs").iterdir()
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rewards = [step["reward/mean"] for step in steps if "reward/mean" in step]
    assert fmean(rewards[-3:]) > fmean(rewards[:3]) + 0.2
    # the trainer's log-probs of what the program was answered are those it was sampled with
    assert max(step["parity/k3"] for step in steps if "parity/k3" in step) < 1e-7
    groups = list(read_jsonl(run / "traces" / "rollouts.jsonl"))
    turns = [
        (row["loss_mask"], row["transcript"]["turns"])
        for group in groups
        for row in group["completions"]
        if len(row["transcript"]["turns"]) == 3
    ]
    assert turns
    for mask, said in turns:
        first, tool, last = (turn["n_tokens"] for turn in said)
        assert mask == [1] * first + [0] * tool + [1] * last
