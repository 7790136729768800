"""A run whose advantages, loss and schedule are functions of a file."""

from __future__ import annotations

import json

import pytest

from tests.support.run_records import lines

MINE = """
from rlvr_core.api import LossOutput

def centred(step):
    advantage_N = step.reward_N.copy()
    for place in range(len(step.groups)):
        of_group_N = step.group_N == place
        advantage_N[of_group_N] -= advantage_N[of_group_N].mean()
    return advantage_N

def surrogate(batch, normalizer):
    ratio_BT = (batch.logp_BT - batch.old_logp_BT).exp()
    loss_BT = -ratio_BT * batch.advantage_B[:, None] * batch.mask_BT
    return LossOutput(loss_BT.sum() / normalizer.tokens, {}, {})

def halving(progress):
    return 1 - progress / 2
"""


def test_a_run_learns_by_functions_of_a_file(lab):
    (lab.folder / "mine.py").write_text(MINE)
    run = lab.run(
        advantage="./mine.py:centred",
        loss="./mine.py:surrogate",
        train={"steps": 3, "lr": 1e-3, "warmup_steps": 0, "lr_schedule": "./mine.py:halving"},
    )
    metrics = lines(run / "metrics.jsonl")
    assert [line["lr"] for line in metrics] == pytest.approx([1e-3, 0.75e-3, 0.5e-3])
    groups = lines(run / "traces" / "rollouts.jsonl")
    for step, line in enumerate(metrics):
        total = tokens = 0.0
        for group in (group for group in groups if group["step"] == step):
            rewards = [one["reward"] for one in group["completions"]]
            mean = sum(rewards) / len(rewards)
            for one in group["completions"]:
                if one["advantage"] is not None:
                    assert one["advantage"] == pytest.approx(one["reward"] - mean)
                    total += one["advantage"] * sum(one["loss_mask"])
                    tokens += sum(one["loss_mask"])
        # one update a step: every ratio is 1
        assert line["loss"] == pytest.approx(-total / tokens, abs=1e-6)
    assert len({line["grad_norm"] for line in metrics} - {0.0}) == 3
    manifest = json.loads((run / "run.json").read_text())
    assert "./mine.py:centred" in json.dumps(manifest)
