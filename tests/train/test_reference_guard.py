"""The guard ``kl`` follows the reference: its weights and its log-probs."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from small import small_model  # type: ignore
from test_invariants import Sampling, run_config, sample, steps, trainer_with, with_kl

import rlvr_core.step.step as step_module
from rlvr_core.api import RunError
from rlvr_core.builtin.invariants.invariants import invariants_of
from rlvr_core.config.model import ReferenceSection
from rlvr_core.step.reference import SeparateModel


def followed(sync_every=None, ema=1.0, *, kind=SeparateModel, dtype=torch.float32):
    """A trainer with a reference that begins as the policy, and moves as said."""
    section = ReferenceSection(sync_every=sync_every, ema=ema)
    trainer = trainer_with(with_kl)
    frozen = small_model(num_hidden_layers=2)
    frozen.load_state_dict(trainer.model.state_dict())
    frozen.to(dtype).requires_grad_(False)
    trainer.reference = kind(frozen, trainer.model, section)
    trainer.train = trainer.train.model_copy(update={"reference": section})
    trainer.observer = invariants_of(run_config(trainer.train), trainer, Sampling())
    return trainer


class Late(SeparateModel):
    def follow(self, version):
        return super().follow(version + 1)


class Still(SeparateModel):
    def follow(self, version):
        return False


class InPart(SeparateModel):
    def _pairs(self):
        return iter(list(super()._pairs())[:-2])


class TooFar(SeparateModel):
    def __init__(self, model, policy, section):
        super().__init__(model, policy, section.model_copy(update={"ema": 0.9}))


@pytest.mark.parametrize(
    ("sync_every", "ema"), [(None, 1.0), (1, 1.0), (2, 1.0), (1, 0.3), (3, 0.5)]
)
def test_healthy_references_are_quiet(sync_every, ema):
    found = steps(followed(sync_every, ema), 5)
    assert all(line["kl/error"] < 1e-5 for line in found)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Still, "has not followed the policy: "),
        (Late, "has moved, and no sync was due"),
        (InPart, "has not followed the policy: 2 of "),
    ],
)
def test_a_reference_that_moves_otherwise(kind, words):
    with pytest.raises(RunError, match="guard kl") as caught:
        steps(followed(2, kind=kind), 5)
    assert words in str(caught.value)
    assert "after every 2 updates" in str(caught.value)


def test_a_reference_that_moves_too_far():
    with pytest.raises(RunError, match="has not followed the policy"):
        steps(followed(1, 0.3, kind=TooFar), 5)


@pytest.mark.parametrize("sync_every", [None, 2])
def test_a_reference_that_has_the_policys_own_embedding(sync_every):
    trainer = followed(sync_every)
    trainer.reference.model.set_input_embeddings(trainer.model.get_input_embeddings())
    with pytest.raises(RunError, match="guard kl: 1 of the reference's") as caught:
        steps(trainer, 1)
    assert "are the policy's own, and are trained along" in str(caught.value)
    assert "such as model.embed_tokens.weight" in str(caught.value)


def test_a_reference_may_share_what_is_not_trained():
    trainer = followed()
    trainer.model.get_input_embeddings().requires_grad_(False)
    trainer.optimizer.parameters = [
        one for one in trainer.optimizer.parameters if one.requires_grad
    ]
    trainer.reference.model.set_input_embeddings(trainer.model.get_input_embeddings())
    trainer.observer._checks = {"kl": trainer.observer._checks["kl"]}
    assert len(steps(trainer, 2)) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_tensor_of_the_reference_is_slightly_larger(dtype):
    trainer = followed(dtype=dtype)
    with torch.no_grad():
        trainer.reference.model.model.layers[1].input_layernorm.weight.mul_(1.02)
    trainer.precision = replace(trainer.precision, compute=dtype)
    trainer.observer._checks = {"kl": trainer.observer._checks["kl"]}
    with pytest.raises(RunError, match="before the first update: 1 of ") as caught:
        steps(trainer, 1)
    assert "layers.1.input_layernorm.weight" in str(caught.value)


def instead(monkeypatch, change):
    """Change the reference's log-probs from the second step on."""
    real = step_module.PolicyTrainer._aux_logprobs

    def aux(self, part, batch):
        found = real(self, part, batch)
        return replace(found, ref_logp_BT=change(found.ref_logp_BT, self, batch))

    monkeypatch.setattr(step_module.PolicyTrainer, "_aux_logprobs", aux)


@pytest.mark.parametrize(
    "change",
    [
        lambda ref_BT, trainer, batch: batch.behaviour_logp_BT.to(ref_BT),
        lambda ref_BT, trainer, batch: (ref_BT + batch.behaviour_logp_BT.to(ref_BT)) / 2,
        lambda ref_BT, trainer, batch: trainer._logprobs(trainer.model, batch).detach(),
    ],
)
def test_log_probs_of_the_engine_or_the_policy_stand_for_the_references(monkeypatch, change):
    instead(monkeypatch, change)
    with pytest.raises(RunError, match="guard kl: the reference's log-probs differ from those"):
        steps(followed(), 4)


def test_log_probs_on_the_way_to_the_policy_show_through_the_rounding(monkeypatch):
    """In bfloat16 the mean difference is within its band, and its direction is not."""
    from rlvr_core.builtin.invariants import references

    monkeypatch.setitem(references.MEAN, torch.float32, 10.0)
    instead(monkeypatch, lambda ref_BT, trainer, batch: batch.behaviour_logp_BT.to(ref_BT))
    with pytest.raises(RunError, match="of the way from those of its weights to those of the"):
        steps(followed(), 6)


def test_the_guard_goes_on_from_a_checkpoint():
    trainer = followed(2)
    steps(trainer, 3)
    again = followed(2)
    again.model.load_state_dict(trainer.model.state_dict())
    again.reference.model.load_state_dict(trainer.reference.model.state_dict())
    again.observer.load_state_dict(trainer.observer.state_dict())
    for version in (3, 4, 5):
        again.update(sample(again.model, seed=version, version=version), version, version)
