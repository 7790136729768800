"""The guards of a step's formulas: each fires on its fault, and none on a healthy step."""

from dataclasses import replace

import pytest
import torch

import rlvr_core.losses as losses
from rlvr_core.algorithm.estimate import Estimator
from rlvr_core.api import AdvantageOutput, AdvantageTraits
from rlvr_core.config.model import ReferenceSection
from rlvr_core.guards.parity import Parity
from rlvr_core.guards.tokens import Tokens
from rlvr_core.guards.updates import Updates
from rlvr_core.losses import DAPO, GRPO, GSPO, DrGRPO
from rlvr_core.step.reference import SeparateModel
from rlvr_guards.advantages import FORMULAS, Advantages
from rlvr_guards.kl import Kl
from rlvr_guards.loss import LossValues
from rlvr_guards.optimizer import OptimizerUpdates
from tests.support.guards.stepping import Watched, fault, made, put_back, trainer_with

ALL = (Tokens, Advantages, Kl, LossValues, Updates, OptimizerUpdates)
with_kl = GRPO(GRPO.Config(beta=0.05))


@pytest.mark.parametrize(
    ("loss", "more"),
    [
        (None, {}),
        (DAPO(DAPO.Config()), {"mini_batches": 2}),
        (DrGRPO(DrGRPO.Config()), {"num_iterations": 2}),
        (GSPO(GSPO.Config()), {"mini_batches": 2, "tokens_per_micro_batch": 40}),
        (GRPO(GRPO.Config(top_entropy=0.2, entropy_bonus=0.01)), {}),
        (with_kl, {"reference": "frozen", "num_iterations": 2}),
        (GRPO(GRPO.Config(beta=0.1, kl_estimator="k2")), {"reference": "frozen"}),
        (GRPO(GRPO.Config(beta=0.1, kl_estimator="k1")), {"reference": "frozen"}),
        (GRPO(GRPO.Config(beta=0.1, kl_ratio_corrected=True)), {"reference": "frozen"}),
    ],
    ids=lambda value: "" if isinstance(value, dict) else type(value).__name__,
)
def test_healthy_steps_are_quiet(loss, more):
    guards = [made(kind) for kind in (Parity, *ALL)]
    run = Watched(*guards, trainer=trainer_with(loss, **more)).start()
    lines = run.steps()
    assert [text for text in run.said if "warning" in text] == []
    for line in lines:
        assert abs(line.get("parity/slope", 1.0) - 1) < 1e-4
        assert line.get("parity/k3", 0.0) < 1e-9
        assert line.get("advantages/error", 0.0) < 1e-6
        assert line.get("tokens/missing", 0.0) == 0
        assert line.get("updates/at_rest", 0.0) == 0
        assert line.get("loss/error", 0.0) < 1e-4
        assert line.get("optimizer/error", 0.0) < 1e-4
    assert lines[0].get("kl/k3", 0.0) < 1e-9


# -- advantages -----------------------------------------------------------------------------------


class Changed:
    """An estimator of our own."""

    traits = AdvantageTraits()

    def __init__(self, of):
        self.of = of

    def __call__(self, step):
        return AdvantageOutput(self.of(step))


@pytest.mark.parametrize(
    "change", [lambda a: a * 1.25, lambda a: -a, lambda a: a + 0.1, lambda a: a.roll(1)]
)
def test_advantages_that_are_not_those_of_the_rewards(monkeypatch, change):
    import rlvr_core.advantages as module

    real = module.advantages

    def wrong(*arguments):
        output = real(*arguments)
        return replace(output, advantage_N=change(output.advantage_N))

    monkeypatch.setattr(module, "advantages", wrong)
    fault(Watched(made(Advantages)), "another advantage than their rewards give")


def test_an_estimator_of_ones_own_has_no_formula_and_that_is_said_once():
    raw = Estimator("raw", Changed(lambda step: step.reward_N))
    run = Watched(made(Advantages), trainer=trainer_with(estimator=raw))
    run.steps(2)
    assert [text for text in run.said if "Changed has no formula here" in text] == run.said
    assert len(run.said) == 1


def test_a_loss_of_the_wrong_sign():
    class Down(GRPO):
        def __call__(self, batch, normalizer):
            output = super().__call__(batch, normalizer)
            return replace(output, loss=-output.loss)

    fault(Watched(made(Advantages), trainer=trainer_with(Down(GRPO.Config()))), "wrong sign")


def test_formulas_worked_out_by_hand():
    rewards = [[1.0, 0.0, None, 0.0], [2.0]]
    assert FORMULAS["Center"](rewards)[0] == pytest.approx([2 / 3, -1 / 3, 0, -1 / 3])
    std = (2 / 9) ** 0.5
    scaled = [2 / 3 / std, -1 / 3 / std, 0, -1 / 3 / std]
    assert FORMULAS["Group"](rewards)[0] == pytest.approx(scaled)
    assert FORMULAS["Rloo"](rewards)[0] == pytest.approx([1, -0.5, 0, -0.5])
    assert FORMULAS["Group"](rewards)[1] == [0.0]


# -- kl -------------------------------------------------------------------------------------------


def test_a_reference_of_other_weights_or_one_that_moves():
    run = Watched(made(Kl), trainer=trainer_with(with_kl, reference="frozen"))
    with torch.no_grad():
        run.trainer.reference.model.lm_head.weight.mul_(1.1)
    fault(run, "before the first update")
    run = Watched(made(Kl), trainer=trainer_with(with_kl, reference="frozen"))
    run.steps(1)
    with torch.no_grad():
        run.trainer.reference.model.lm_head.weight.add_(0.01)
    fault(run, "other weights than at the start")
    trainer = trainer_with(with_kl, reference="frozen")
    trainer.reference = SeparateModel(trainer.model, trainer.model, ReferenceSection())
    fault(Watched(made(Kl), trainer=trainer), "shares all of its tensors")


# -- loss -----------------------------------------------------------------------------------------


class Halved(GRPO):
    """Its importance weight, KL or sum is another than the formula's."""

    def __call__(self, batch, normalizer):
        output = super().__call__(batch, normalizer)
        return replace(output, loss=0.5 * output.loss)


def test_a_loss_that_is_not_its_formula(monkeypatch):
    real = losses.row_mean
    monkeypatch.setattr(losses, "row_mean", lambda *given: 0.5 * real(*given))
    fault(Watched(made(LossValues)), "that of the loss's formula")


@pytest.mark.parametrize(
    "change",
    [lambda real, p, r, kind: -real(p, r, kind), lambda real, p, r, kind: real(r, p, kind)],
    ids=["sign", "direction"],
)
def test_a_kl_of_the_wrong_sign_or_direction(monkeypatch, change):
    import rlvr_core.algorithm.policy as module

    real = module.kl_policy_ref
    monkeypatch.setattr(module, "kl_policy_ref", lambda p, r, kind="k3": change(real, p, r, kind))
    trainer = trainer_with(with_kl, reference="frozen")
    fault(Watched(made(LossValues), trainer=trainer), "formula")


def test_a_gradient_that_is_not_that_of_the_formula(monkeypatch):
    real = losses.row_mean

    def still(loss_BT, mask_BT, normalizer):
        kept_BT = torch.where(mask_BT.cumsum(1) == 2, loss_BT.detach(), loss_BT)
        return real(kept_BT, mask_BT, normalizer)

    monkeypatch.setattr(losses, "row_mean", still)
    fault(Watched(made(LossValues)), "the gradient that arrives at the log-probs")


def test_a_clip_that_is_not_the_configs(monkeypatch):
    real = losses.clipped
    monkeypatch.setattr(
        losses,
        "clipped",
        lambda terms, options: real(
            terms, options.model_copy(update={"clip_high": 10 * options.clip_high})
        ),
    )
    trainer = trainer_with(num_iterations=3, lr=0.05)
    fault(Watched(made(LossValues), trainer=trainer), "formula", n=6)


def test_options_and_weights_that_are_not_the_configs():
    run = Watched(made(LossValues))
    other = GRPO(GRPO.Config(clip_high=0.3))
    term = run.trainer.objective.terms[0]
    object.__setattr__(term, "loss", other)
    fault(run, "clip_high 0.3, and the config makes it 0.2")


def test_a_loss_of_somebody_else_is_not_looked_at_and_said_once():
    run = Watched(made(LossValues), trainer=trainer_with(Halved(GRPO.Config()))).start()
    run.steps(3)
    assert len(run.said) == 1
    assert "does not look" in run.said[0]


# -- optimizer ------------------------------------------------------------------------------------


def test_an_optimizer_that_moves_nothing():
    run = Watched(made(OptimizerUpdates))
    put_back(run.trainer, run.trainer.optimizer.parameters)
    fault(run, "AdamW says")


def test_a_gradient_that_is_not_cleared(monkeypatch):
    run = Watched(made(OptimizerUpdates))
    monkeypatch.setattr(run.trainer.optimizer.inner, "zero_grad", lambda *_, **__: None)
    fault(run, "is not the sum of what the backward passes")


def test_other_moments_than_the_gradients():
    run = Watched(made(OptimizerUpdates))

    def double(optimizer, *_):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(2.0)

    run.trainer.optimizer.inner.register_step_pre_hook(double)
    fault(run, "did not take the gradient")


def test_weights_that_change_between_two_updates():
    run = Watched(made(OptimizerUpdates))
    run.steps(1)
    with torch.no_grad():
        for parameter in run.trainer.optimizer.parameters:
            parameter.add_(1e-3)
    fault(run, "has changed between two updates")


def test_updates_that_are_rounded_to_half_precision():
    run = Watched(made(OptimizerUpdates))

    def rounded(optimizer, *_):
        with torch.no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.copy_(parameter.bfloat16().float())

    run.trainer.optimizer.inner.register_step_post_hook(rounded)
    fault(run, "rounded to bfloat16")
