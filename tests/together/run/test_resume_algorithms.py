"""Runs with other optimizers and estimators, killed and resumed bit for bit."""

import json

import pytest

from tests.support.run_records import digest, killed_after, steps_of

pytestmark = pytest.mark.slow

TRAIN = {"steps": 6, "lr": 2e-3, "warmup_steps": 1}
PER_TOKEN = """
import numpy as np
from rlvr_core.api import AdvantageOutput, AdvantageTraits, NoConfig


class Discounted:
    \"\"\"The reward less its group's mean, discounted by 0.9 a token from the end.\"\"\"

    traits = AdvantageTraits(per_token=True)

    def __init__(self, config: NoConfig) -> None:
        pass

    def __call__(self, step):
        found = []
        for group, reward, member in zip(step.group_N, step.reward_N, step.members, strict=True):
            mean = np.nanmean(step.reward_N[step.group_N == group])
            length = len(member.completion.token_ids)
            found.append((reward - mean) * 0.9 ** np.arange(length)[::-1])
        return AdvantageOutput(found)
"""
HELD = {"use": "reinforce_plus_plus", "with": {"beta": 0.05}}
CASES = {
    "muon": {"train": TRAIN | {"optimizer": {"use": "muon", "with": {"weight_decay": 0.01}}}},
    "reinforce++, KL in the reward": {"advantage": HELD, "loss": "grpo"},
    "reinforce++, KL to a reference that moves": {
        "advantage": HELD,
        "loss": "grpo",
        "train": TRAIN | {"reference": {"sync_every": 2, "ema": 0.5}},
    },
    "lora": {"lora": {"rank": 4, "alpha": 8}, "train": TRAIN | {"lr": 1e-2}},
    "an advantage a token": {"advantage": "./per_token.py:Discounted", "loss": "grpo"},
}


@pytest.mark.parametrize("sections", CASES.values(), ids=CASES)
def test_t94_killed_and_resumed_bit_for_bit(lab, sections):
    (lab.folder / "per_token.py").write_text(PER_TOKEN)
    if "lora" in sections:
        sections = sections | {"model": lab.config["model"] | {"lora": sections["lora"]}}
        del sections["lora"]
    sections = {"train": TRAIN, "checkpoint": {"every": 1, "keep": 9}} | sections
    straight = digest(lab.run(**sections))
    assert "checkpoints/step000006/trainer/optimizer.safetensors" in straight
    run = killed_after(lab, 3)
    assert steps_of(run) < 6
    lab.rlvr("run", "--resume", "last", "--display", "none")
    assert digest(run) == straight
    assert json.loads(lab.rlvr("show", "last", "--json").stdout)["ledger"]["balanced"] is True
