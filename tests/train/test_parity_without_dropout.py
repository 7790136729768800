"""Guard ``parity`` where the loss's own log-probs have dropout: it compares a pass without."""

import copy
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from small import small_model, small_trainer  # type: ignore
from test_invariants import Sampling, run_config, sample  # type: ignore

from rlvr_core.api import GroupsScored, RunError
from rlvr_core.builtin.invariants.invariants import invariants_of
from rlvr_core.builtin.lora import lora
from rlvr_core.config.model import LoraSection, TrainSection
from rlvr_core.losses import GRPO
from rlvr_core.step.objective import LossTerm

SECTION = LoraSection(rank=4, alpha=8, dropout=0.1)


def steps(n, change=None):
    """Metrics of steps whose completions are sampled by a copy of the policy, changed from 2 on."""
    model = small_model(num_hidden_layers=2)
    with torch.no_grad():  # distributions that are not flat
        model.lm_head.weight.mul_(20)
    lora.attach(model, SECTION, seed=1, compute=torch.float32, path="x", revision=None)
    train = TrainSection(steps=100, lr=1e-2, warmup_steps=0)
    trainer = small_trainer(model, [LossTerm("l", GRPO(GRPO.Config()))], train)
    config = run_config(train)
    config = config.model_copy(update={"model": config.model.model_copy(update={"lora": SECTION})})
    trainer.observer = invariants_of(config, trainer, Sampling())
    found, version = [], 0
    for step in range(n):
        engine = copy.deepcopy(model).eval()
        if change and step >= 2:
            with torch.no_grad():
                change(engine)
        groups = sample(engine, seed=step, version=version)
        trainer.observer.on_groups(GroupsScored(step, version, tuple(groups)))
        report = trainer.update(groups, step, version)
        version += report.applied
        found.append(report.metrics)
    return found


def test_a_pass_without_dropout_is_compared_in_every_step():
    lines = steps(4)
    assert all(abs(line["parity/slope"] - 1) < 1e-4 for line in lines)
    assert all(line["parity/k3"] < 1e-9 for line in lines)


def later_adapter(model):
    for name, one in model.named_parameters():
        if "lora_B" in name:
            one.mul_(1.2)


def test_an_engine_with_another_adapter_is_named_after_the_first_steps():
    with pytest.raises(RunError, match=r"of the trainer without dropout differ.* at version 2"):
        steps(4, later_adapter)
