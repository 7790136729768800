"""Guard weights: the policy that a run begins with is the model in its files."""

from types import SimpleNamespace

import pytest
import torch

from rlvr_core.api import RunError, RunStarted
from rlvr_core.builtin.invariants.model_files import Begun, ModelFiles
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
