"""Guard weights: the policy that a run begins with is the model in its files; and labels of age."""

from types import SimpleNamespace

import pytest
import torch

from rlvr_core.api import RunError, RunStarted
from rlvr_core.builtin.invariants.model_files import Begun, ModelFiles
from rlvr_core.builtin.invariants.rows import newer_tails
from rlvr_core.builtin.lora import lora
from rlvr_core.config.model import LoraSection
from rlvr_core.testing.random_model import save_random_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    save_random_model(place, seed=0)
    return place


def begin(folder, change=lambda model: None, *, dtype=torch.float32, resumed=False):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    with torch.no_grad():
        change(model)
    files = ModelFiles(str(folder), SimpleNamespace(revision=None, trust_remote_code=False))
    guard = Begun(files, SimpleNamespace(model=model))
    guard.run_started(RunStarted(folder, {}, 0, resumed))


def with_adapter(model):
    section = LoraSection(rank=4, alpha=6)
    lora.attach(model, section, seed=1, compute=model.dtype, path="x", revision=None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("change", [lambda model: None, with_adapter])
def test_a_model_as_it_is_in_its_files(folder, dtype, change):
    begin(folder, change, dtype=dtype)


def one_number(model):
    model.model.layers[1].mlp.down_proj.weight[-1, -1] += 1e-3


def rotation(model):
    model.model.rotary_emb.inv_freq.copy_(model.model.rotary_emb.inv_freq.bfloat16())


def epsilon(model):
    model.model.layers[0].input_layernorm.variance_epsilon = 1e-3


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (one_number, "model.layers.1.mlp.down_proj.weight"),
        (rotation, "model.rotary_emb.inv_freq"),
        (epsilon, "RMSNorm.variance_epsilon"),
    ],
)
def test_what_was_changed_at_loading_is_named(folder, change, name):
    with pytest.raises(RunError, match=rf"guard weights: .* 1 tensors or numbers .*{name}"):
        begin(folder, change)
    begin(folder, change, resumed=True)  # its weights are a checkpoint's


def tails(apart, *, version=3, labels=(), surprise=1.0):
    """What is counted for a row of version 2 whose log-probs moved by ``apart`` since."""
    behaviour_BT = torch.full((1, len(apart)), -surprise)
    batch = SimpleNamespace(
        behaviour_logp_BT=behaviour_BT,
        old_logp_BT=behaviour_BT + torch.tensor([apart]),
        mask_BT=torch.ones(1, len(apart), dtype=torch.bool),
    )
    micro = SimpleNamespace(group_B=torch.tensor([0]))
    member = SimpleNamespace(completion=SimpleNamespace(token_versions=labels))
    group = SimpleNamespace(version=2, members=(member,))
    seen = [SimpleNamespace(micro_batch=micro, batch=batch)]
    return newer_tails(SimpleNamespace(groups=[group], version=version, seen=seen))


def test_tails_of_newer_weights_by_hand():
    """Three tokens moved by some hundredths, and the last four not at all."""
    assert tails([0.03, -0.02, 0.01, 0.0, 1e-6, 0.0, -1e-6]) == 1
    assert tails([0.03, -0.02, 0.01, 0.02, 1e-6, 0.0, -1e-6]) == 0, "three tokens are no evidence"
    assert tails([1e-4, -2e-4, 1e-4, 0.0, 1e-6, 0.0, -1e-6]) == 0, "nothing has moved enough"
    assert tails([0.0] * 7) == 0, "nothing has moved"
    assert tails([0.03, -0.02, 0.01, 0, 0, 0, 0], version=2) == 0, "its label is the newest"
    assert tails([0.03, -0.02, 0.01, 0, 0, 0, 0], labels=(2, 2, 2, 3, 3, 3, 3)) == 0, "recorded"
    assert tails([0.03, -0.02, 0.01, 0, 0, 0, 0], surprise=0.01) == 0, "sure tokens do not move"
