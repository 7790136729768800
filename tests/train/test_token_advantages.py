"""REINFORCE++ token by token: by hand, against the estimator, and with faults."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from test_invariants import (  # type: ignore
    Sampling,
    fault,
    run_config,
    sample,
    steps,
    trainer_with,
)

import rlvr_core.step.step as step_module
from rlvr_core.algorithm.estimate import Estimator, judged_step
from rlvr_core.api import Completion, Group, Judged, Problem
from rlvr_core.builtin.advantages.reinforce_plus_plus import ReinforcePlusPlus
from rlvr_core.builtin.invariants.invariants import invariants_of
from rlvr_core.builtin.invariants.token_advantages import TokenAdvantages, reinforce_plus_plus
from rlvr_core.config.model import ComponentRef


def member(reward, mask):
    done = Completion((1,), (2,) * len(mask), (-1.0,) * len(mask), mask, "x", "stop", 0)
    return Judged(done, {}, reward, None if reward is None else reward > 0)


def two_groups():
    first = (member(1.0, (True, True)), member(0.0, (True,)), member(None, (True,)))
    second = (member(2.0, (False, True)),)
    names = Problem("p", "?", "v", {}, "a"), Problem("q", "?", "v", {}, "a")
    return [Group(names[0], first, 0), Group(names[1], second, 0)]


def test_advantages_by_hand():
    """Returns of the four loss tokens that count: 1 - .5 * (2 + 4), 1 - .5 * 4, 0 - .5 * 2, 2."""
    kl = [[2.0, 4.0], [2.0], [9.0], [0.0, 0.0]]
    found = reinforce_plus_plus(two_groups(), kl, 0.5, group_baseline=False)
    assert found.mean == pytest.approx((-2 - 1 - 1 + 2) / 4)
    # deviations -1.5, -.5, -.5, 2.5: squares 2.25 + .25 + .25 + 6.25 = 9, over 4
    assert found.std == pytest.approx(1.5)
    first, second, _, last = found.advantages
    assert (first, second) == (pytest.approx([-1.0, -1 / 3]), pytest.approx([-1 / 3]))
    assert last[1] == pytest.approx(5 / 3)


@pytest.mark.parametrize("baseline", [False, True])
def test_they_are_those_of_the_estimator(baseline):
    kl = [[0.2, -0.4], [0.1], [0.3], [0.0, 0.5]]
    component = ReinforcePlusPlus(ReinforcePlusPlus.Config(beta=0.3, group_baseline=baseline))
    arrays = [torch.tensor(one).double().numpy() for one in kl]
    theirs = component(judged_step(two_groups(), [1.0], arrays)).advantages
    ours = reinforce_plus_plus(two_groups(), kl, 0.3, group_baseline=baseline).advantages
    for place in (0, 1, 3):
        assert ours[place] == pytest.approx(list(theirs[place]))


def whitening(configured=None, **options):
    """A trainer with REINFORCE++, and a reference that the policy leaves with its first update."""
    component = ReinforcePlusPlus(ReinforcePlusPlus.Config(**options))
    trainer = trainer_with(
        reference="frozen",
        estimator=Estimator("reinforce_plus_plus", component),
        tokens_per_micro_batch=60,
    )
    config = run_config(trainer.train)
    ref = ComponentRef.model_validate({"use": "reinforce_plus_plus", "with": configured or options})
    config = config.model_copy(update={"advantage": ref})
    trainer.observer = invariants_of(config, trainer, Sampling())
    return trainer


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_a_healthy_step_is_quiet(beta):
    lines = steps(whitening(beta=beta), 3)
    assert all(line["advantages/error"] < 1e-5 for line in lines)


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_a_micro_batch_that_whitens_for_itself(monkeypatch, beta):
    real = step_module.LossBatch

    def whitened(**given):
        a_BT, mask_BT = given["advantage_BT"], given["mask_BT"]
        own = a_BT[mask_BT]
        return real(**given | {"advantage_BT": (a_BT - own.mean()) / own.std()})

    monkeypatch.setattr(step_module, "LossBatch", whitened)
    fault(whitening(beta=beta), "advantages", "have another advantage than rewards and KL give")


@pytest.mark.parametrize(
    "configured", [{"beta": 0.0, "group_baseline": True}, {"beta": 0.5}, {"beta": 0.0}]
)
def test_options_that_do_not_reach_the_estimator(configured):
    other = whitening(configured, beta=0.5 if configured["beta"] == 0 else 0.1)
    fault(other, "advantages", "have another advantage than rewards and KL give")


def test_a_kl_of_the_wrong_sign(monkeypatch):
    real = step_module.PolicyTrainer._reference_kl
    monkeypatch.setattr(
        step_module.PolicyTrainer, "_reference_kl", lambda *given: [-one for one in real(*given)]
    )
    fault(whitening(beta=2.0), "advantages", "than rewards and KL give")


def test_what_is_reported_of_the_returns():
    trainer = whitening(beta=0.0)
    groups = sample(trainer.model)
    view = replace(trainer.observer._view, groups=groups)
    tokens = TokenAdvantages({"beta": 0.0})
    tokens.begin(view)
    whole = tokens.whole
    line = {"advantage/return_mean": whole.mean, "advantage/return_std": whole.std}
    assert tokens.wrong_figure(line) == ""
    assert tokens.wrong_figure({}) == ""
    line["advantage/return_std"] = whole.std**2
    assert "advantage/return_std is reported as" in tokens.wrong_figure(line)
