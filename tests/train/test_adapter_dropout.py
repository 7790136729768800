"""Guard ``parity``: the adapter drops the share of its inputs that the config says."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from small import small_model  # type: ignore

from rlvr_core.builtin.invariants.dropout import UPDATES, Dropped, DroppedInputs
from rlvr_core.builtin.lora import lora
from rlvr_core.config.model import LoraSection

TRAINED = SimpleNamespace(seen=[SimpleNamespace(gradient_BT=torch.ones(1, 1))])


def adapted(p):
    model = small_model()
    section = LoraSection(rank=2, alpha=4, dropout=p)
    lora.attach(model, section, seed=1, compute=torch.float32, path="x", revision=None)
    return model


def passes(model, times=1, on=True):
    for key in range(times):
        if on:
            with lora.dropout(model, key):
                model(torch.arange(20)[None])
        else:
            model(torch.arange(20)[None])


@pytest.mark.parametrize(
    ("has", "config", "fine"), [(0.1, 0.1, True), (0.9, 0.1, False), (0.1, 0.3, False)]
)
def test_the_share_that_is_dropped(has, config, fine):
    model, inputs = adapted(has), DroppedInputs(config)
    inputs.watch(model)
    passes(model, 3)
    found = inputs.take()
    # 20 tokens through seven linear layers of 16 inputs
    assert found.total == 3 * 20 * 7 * 16
    assert found.dropped / found.total == pytest.approx(has, abs=0.03)
    wrong = inputs.wrong(TRAINED, [found])
    assert (wrong == "") == fine
    if not fine:
        assert f"model.lora.dropout is {config:g}" in wrong


def test_dropout_in_a_pass_without_a_gradient():
    model, inputs = adapted(0.1), DroppedInputs(0.1)
    inputs.watch(model)
    passes(model)
    with torch.no_grad():
        passes(model, on=False)
    assert inputs.wrong(TRAINED, [inputs.take()]) == ""
    passes(model)
    with torch.no_grad():
        passes(model)
    found = inputs.take()
    assert 0 < found.apart < 20 * 16  # of the first layer alone
    assert found.total == 20 * 7 * 16  # and none of them counts as trained on
    assert "is on in a pass without a gradient" in inputs.wrong(TRAINED, [found])


@pytest.mark.parametrize(("factor", "fine"), [(1.0, True), (0.99, True), (0.9, False)])
def test_what_is_not_dropped_is_scaled(factor, fine, monkeypatch):
    plain = torch.nn.Dropout.forward

    def scaled(layer, given):
        out = plain(layer, given)
        return factor * out if layer.training else out

    monkeypatch.setattr(torch.nn.Dropout, "forward", scaled)
    model, inputs = adapted(0.1), DroppedInputs(0.1)
    inputs.watch(model)
    passes(model)
    found = inputs.take()
    assert found.after / found.before == pytest.approx(factor / 0.9, rel=1e-5)
    wrong = inputs.wrong(TRAINED, [found])
    assert (wrong == "") == fine
    if not fine:
        assert "by 1.0000, and by 1 / (1 - 0.1) = 1.1111" in wrong


def test_dropout_that_is_off():
    model, inputs = adapted(0.1), DroppedInputs(0.1)
    inputs.watch(model)
    passes(model, on=False)
    assert "is off in the training pass" in inputs.wrong(TRAINED, [inputs.take()])
    without, inputs = adapted(0.0), DroppedInputs(0.1)
    inputs.watch(without)
    passes(without)
    assert "is off in the training pass" in inputs.wrong(TRAINED, [inputs.take()])


def test_it_counts_in_the_first_updates_alone():
    model, inputs = adapted(0.1), DroppedInputs(0.1)
    inputs.watch(model)
    for _ in range(UPDATES):
        passes(model)
        assert inputs.wrong(TRAINED, [inputs.take()]) == ""
    passes(model)
    assert inputs.take() == Dropped(0, 0)
    inputs.watch(model)
    passes(model)
    assert inputs.take() == Dropped(0, 0)


@pytest.mark.parametrize(("keys", "wrong"), [((0, 1, 2), False), ((0, 1, 0), True)])
def test_no_two_micro_batches_drop_the_same(keys, wrong):
    model, inputs = adapted(0.1), DroppedInputs(0.1)
    inputs.watch(model)
    found = []
    for key in keys:
        with lora.dropout(model, key):
            model(torch.arange(20)[None])
        inputs.computed()
        with lora.dropout(model, key):  # computed again in the backward pass
            model(torch.arange(20)[None])
        found.append(inputs.wrong(TRAINED, [inputs.take()]))
    assert found[:2] == ["", ""]
    assert ("drops the same inputs in two micro-batches" in found[2]) == wrong
    assert wrong or found[2] == ""


@pytest.mark.parametrize("between", [True, False])
def test_a_backward_pass_that_draws_another_dropout(between):
    model, inputs = adapted(0.1), DroppedInputs(0.1)
    inputs.watch(model)
    passes(model)
    inputs.computed()
    with lora.dropout(model, 5):
        model(torch.arange(20)[None])  # computed again, with other random numbers
    if between:  # by the next micro-batch, not by the update
        with lora.dropout(model, 6):
            model(torch.arange(20)[None])
        inputs.computed()
    found = inputs.take()
    assert found.others == 1
    words = "computes 1 micro-batches again with another dropout"
    assert words in inputs.wrong(TRAINED, [Dropped(0, 0), found])
    passes(model)
    inputs.computed()
    assert inputs.take().others == 0


def test_a_micro_batch_that_is_too_small_to_compare():
    model, inputs = adapted(0.1), DroppedInputs(0.1)
    inputs.watch(model)
    for length in (20, 1, 20):  # 16 inputs are too few
        with lora.dropout(model, length):
            model(torch.arange(length)[None])
            inputs.computed()
        with lora.dropout(model, length):
            model(torch.arange(length)[None])
    found = inputs.take()
    assert (len(found.masks), found.others) == (2, 0)


def test_masks_of_all_processes_are_compared():
    inputs = DroppedInputs(0.1)
    inputs.watch(adapted(0.1))
    shares = [Dropped(10, 100, ("a", "b")), Dropped(10, 100, ("c", "a"))]
    assert "drops the same inputs" in inputs.wrong(TRAINED, shares)
