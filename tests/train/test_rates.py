"""The learning rate of each update is what the config says, by formulas and by hand."""

import math
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from small import ADAMW, small_model  # type: ignore
from test_invariants import Sampling, fault, run_config, steps, trainer_with  # type: ignore

import rlvr_core.step.optim as optim
from rlvr_core.builtin.invariants.invariants import invariants_of
from rlvr_core.builtin.invariants.rates import rate_of
from rlvr_core.builtin.schedules.decay import WSD, Cosine, DecayConfig, Linear
from rlvr_core.config.model import ComponentRef, TrainSection
from rlvr_core.step.optim import Constant, Optimizer

SCHEDULES = {
    "constant": Constant(Constant.Config()),
    "linear": Linear(DecayConfig(min_lr_ratio=0.1)),
    "cosine": Cosine(DecayConfig()),
    "wsd": WSD(WSD.Config(decay=0.4, min_lr_ratio=0.2)),
}
OPTIONS = {"linear": {"min_lr_ratio": 0.1}, "wsd": {"decay": 0.4, "min_lr_ratio": 0.2}}


def config_with(name, **train):
    config = run_config(TrainSection(**{"lr": 1.0} | train))
    ref = ComponentRef.model_validate({"use": name, "with": OPTIONS.get(name, {})})
    return config.model_copy(update={"train": config.train.model_copy(update={"lr_schedule": ref})})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("constant", [0.5, 1, 1, 1, 1, 1, 1]),
        ("linear", [0.5, 1, 1, 0.775, 0.55, 0.325, 0.1]),
        ("cosine", [0.5, 1, 1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0]),
        ("wsd", [0.5, 1, 1, 1, 1, 0.2 + 0.8 * 0.25 / 0.4, 0.2]),
    ],
)
def test_formulas_by_hand(name, expected):
    config = config_with(name, steps=7, warmup_steps=2)
    found = [rate_of(config, SCHEDULES[name], step) for step in range(7)]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("n", "warmup"), [(1, 0), (2, 0), (2, 1), (3, 2), (40, 0), (40, 7)])
def test_formulas_are_those_of_the_trainer(name, n, warmup):
    config = config_with(name, steps=n, warmup_steps=warmup)
    for step in range(n + 2):
        wanted = optim.learning_rate(config.train, SCHEDULES[name], step)
        assert rate_of(config, SCHEDULES[name], step) == pytest.approx(wanted, abs=1e-15)


def test_a_schedule_of_a_plugin_is_called():
    config = config_with("./mine.py:Root", steps=5, warmup_steps=0)
    assert rate_of(config, math.sqrt, 1) == pytest.approx(0.5)  # a quarter of the way


def test_a_learning_rate_that_is_not_the_configs_is_named_at_the_first_update(monkeypatch):
    real = optim.learning_rate
    monkeypatch.setattr(optim, "learning_rate", lambda *given: 3 * real(*given))
    text = fault(trainer_with(lr=1e-3), "updates", "learning rate is 0.003", "give 0.001")
    assert "step 1" in text


def test_a_schedule_that_counts_from_another_step_is_named(monkeypatch):
    real = optim.learning_rate
    monkeypatch.setattr(
        optim, "learning_rate", lambda train, one, step: real(train, one, max(0, step - 2))
    )
    trainer = scheduled("cosine", lr=1e-3, steps=8)
    assert "step 2" in fault(trainer, "updates", "schedule counts from", "cosine")


def scheduled(name, **train):
    trainer = trainer_with(**train)
    trainer.optimizer.schedule = SCHEDULES[name]
    config = config_with(name, **{"warmup_steps": 0} | train)
    trainer.train = config.train
    trainer.observer = invariants_of(config, trainer, Sampling())
    return trainer


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_schedule_alarms(name):
    steps(scheduled(name, lr=1e-3, steps=5), 5)


@pytest.mark.parametrize("option", ["amsgrad", "maximize"])
def test_an_option_of_the_librarys_optimizer_that_the_config_does_not_know(option):
    trainer = trainer_with(lr=1e-3)
    for group in trainer.optimizer.inner.param_groups:
        assert group[option] is False
        group[option] = True
    fault(trainer, "updates", "AdamW", f"{option} is True")


class TwoRates:
    """Half of the learning rate for vectors."""

    config, traits = ADAMW.config, ADAMW.traits

    def build(self, parameters, lr):
        tensors = [one.tensor for one in parameters]
        return torch.optim.AdamW(
            [
                {"params": [t for t in tensors if t.ndim > 1]},
                {"params": [t for t in tensors if t.ndim == 1], "lr_scale": 0.5},
            ],
            lr=lr,
        )


def test_groups_with_a_scale_of_their_own_do_not_alarm_and_a_lost_one_does():
    trainer = trainer_with(lr=1e-3, model=small_model(num_hidden_layers=2))
    constant = SCHEDULES["constant"]
    trainer.optimizer = Optimizer(trainer.model, trainer.train, torch.float32, TwoRates(), constant)
    steps(trainer, 3)
    inner = trainer.optimizer.inner
    inner.register_step_pre_hook(lambda *_: inner.param_groups[1].update(lr=2e-3))
    fault(trainer, "updates", "learning rate is 0.002")
