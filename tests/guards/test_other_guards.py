"""The guards ``sync`` and ``resume``: each on its fault, and on healthy runs."""

import copy

import pytest
import torch

from rlvr_core.api import EngineTraits, NoConfig, RunError
from rlvr_core.engines.sync import ModuleSource, weight_checksums
from rlvr_core.guards.resume import Resume
from rlvr_core.guards.sync import Sync, compare
from tests.support.guards.stepping import Counting, Watched, trainer_with

# -- sync -----------------------------------------------------------------------------------------


class Holding:
    """An engine with a copy of the trainer's weights."""

    def __init__(self, model, *, own_weights=False):
        self.traits = EngineTraits(own_weights=own_weights)
        self.held = {}
        self.load(model)

    def load(self, model, leave_out=()):
        for name, tensor in model.named_parameters():
            if name not in leave_out:
                self.held[name] = tensor.detach().clone()

    def fingerprint(self):
        return weight_checksums(self.held.items())


def synced(**more):
    trainer = trainer_with(lr=1e-6)
    return Watched(Sync(NoConfig()), trainer=trainer, engine=Holding(trainer.model, **more))


def take(run, leave_out=(), *, load=True):
    """A step, and the sync after it."""
    run.steps(1)
    if load:
        run.context.engine.load(run.trainer.model, leave_out)
    run.trainer.observer.weights_loaded(run.version, ModuleSource(run.trainer.model))


def test_syncs_that_arrive_are_quiet():
    run = synced().start()
    for _ in range(3):
        take(run)
    assert run.guard.report() == {"sync/read_back": 1.0}
    assert run.said == []


def test_an_engine_that_keeps_its_old_weights_is_found_at_the_smallest_update():
    run = synced().start()
    take(run)
    with pytest.raises(RunError, match="the engine kept its old weights"):
        take(run, load=False)


def test_one_tensor_that_did_not_arrive_is_named():
    run = synced().start()
    with pytest.raises(RunError, match=r"guard sync: .*1 of .*q_norm"):
        take(run, ["model.layers.1.self_attn.q_norm.weight"])


def test_numbers_in_other_places_are_found():
    run, name = synced().start(), "model.layers.1.mlp.up_proj.weight"
    run.steps(1)
    run.context.engine.load(run.trainer.model)
    run.context.engine.held[name] = run.context.engine.held[name].flip(0)
    with pytest.raises(RunError, match="numbers in other places"):
        run.trainer.observer.weights_loaded(1, ModuleSource(run.trainer.model))


def test_weights_that_an_engine_holds_in_its_own_form_are_left_out_and_named_once():
    run = synced(own_weights=True)
    run.context.engine.held["lm_head.weight"] = torch.zeros(2, 2)
    run.start()
    assert len(run.said) == 1
    assert "lm_head.weight" in run.said[0]
    take(run, ["lm_head.weight"])


def test_an_engine_that_cannot_read_a_layer_back_is_not_looked_at(monkeypatch):
    run = synced()

    def unknown():
        raise AttributeError("'GateLinear' object has no attribute 'input_size_per_partition'")

    monkeypatch.setattr(run.context.engine, "fingerprint", unknown)
    run.start()
    take(run)
    take(run)
    assert len(run.said) == 1
    assert "does not look" in run.said[0]


def test_a_fused_tensor_is_the_sum_of_its_parts():
    parts = {f"a.{name}.weight": torch.randn(2, 3) for name in ("q_proj", "k_proj", "v_proj")}
    whole = {"a.qkv_proj.weight": torch.cat(list(parts.values()))}
    sent, held = weight_checksums(parts.items()), weight_checksums(whole.items())
    assert compare(sent, held).other == []
    parts["a.k_proj.weight"] += 1
    assert compare(weight_checksums(parts.items()), held).other == ["a.qkv_proj.weight"]


# -- resume ---------------------------------------------------------------------------------------


def saved_run():
    run = Watched(Resume(NoConfig()), sampler=Counting(7))
    run.steps(2)
    return run


def resumed(run, change=lambda trainer: None, sampler=None, state=lambda saved: None):
    """A guard of the same trainer, after something happened to it."""
    saved = copy.deepcopy(run.guard.state_dict())
    state(saved)
    change(run.trainer)
    again = Watched(Resume(NoConfig()), trainer=run.trainer, sampler=sampler or Counting(7))
    again.step, again.version = run.step, run.version
    again.guard.load_state_dict(saved)
    return again.start(resumed=True)


def test_what_is_as_it_was_is_quiet():
    again = resumed(saved_run())
    again.steps(1)
    assert again.said == []


def weights(trainer):
    with torch.no_grad():
        trainer.model.lm_head.weight[0, 0] += 1e-3


def moments(trainer):
    trainer.optimizer.inner.state.clear()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"change": weights}, "the weights are not those"),
        ({"change": moments}, "moments are not those .* missing"),
        ({"sampler": Counting(0)}, "would draw other problems"),
        ({"state": lambda saved: saved.update(step=1)}, "after 1 steps"),
    ],
)
def test_what_was_lost_is_named(more, words):
    with pytest.raises(RunError, match=rf"guard resume: going on from the checkpoint, .*{words}"):
        resumed(saved_run(), **more)


def test_a_version_that_was_lost_is_named():
    again = resumed(saved_run())
    again.version = 0
    with pytest.raises(RunError, match="the policy version is 0, and was 2"):
        again.steps(1)


def test_a_checkpoint_without_fingerprints_is_a_warning():
    run = saved_run()
    again = Watched(Resume(NoConfig()), trainer=run.trainer)
    again.step = 2
    again.start(resumed=True)
    assert ["has no fingerprints" in text for text in again.said] == [True]
