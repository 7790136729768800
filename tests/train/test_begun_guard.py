"""Guard weights: the policy that a run begins with is the model in its files."""

import json
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


def begin(folder, change=lambda model: None, *, dtype=torch.float32, resumed=False, section=None):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    with torch.no_grad():
        change(model)
    files = ModelFiles(str(folder), SimpleNamespace(revision=None, trust_remote_code=False))
    guard = Begun(files, SimpleNamespace(model=model), section)
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


def divided(model):
    model.get_input_embeddings().scale_grad_by_freq = True


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (one_number, "model.layers.1.mlp.down_proj.weight"),
        (rotation, "model.rotary_emb.inv_freq"),
        (epsilon, "RMSNorm.variance_epsilon"),
        (divided, "Embedding.scale_grad_by_freq"),
    ],
)
def test_what_was_changed_at_loading_is_named(folder, change, name):
    with pytest.raises(RunError, match=rf"guard weights: .* 1 tensors or numbers .*{name}"):
        begin(folder, change)
    begin(folder, change, resumed=True)  # its weights are a checkpoint's


ALL = LoraSection(rank=4, alpha=6)
QUERIES = LoraSection(rank=4, alpha=6, target_modules=["q_proj"])
GATES = LoraSection(rank=4, alpha=6, target_modules=["mlp.gate_proj", "q_proj"])


def adapted(section):
    return lambda model: lora.attach(
        model, section, seed=1, compute=model.dtype, path="x", revision=None
    )


def test_an_adapter_that_changes_the_model_before_it_is_trained(folder):
    def drawn(model):
        with_adapter(model)
        for name, one in model.named_parameters():
            if "layers.1.mlp.up_proj.lora_B" in name:
                one[0, 0] = 1e-3

    with pytest.raises(RunError, match=r"1 tensors or numbers differ.*up_proj\.lora_B"):
        begin(folder, drawn)
    begin(folder, drawn, resumed=True)


@pytest.mark.parametrize("section", [ALL, QUERIES, GATES])
def test_adapters_are_where_the_config_has_them(folder, section):
    begin(folder, adapted(section), section=section)


@pytest.mark.parametrize(
    ("attached", "section", "words"),
    [
        (QUERIES, ALL, "12 of 14 layers lack their LoRA adapter, and 0 others"),
        (ALL, QUERIES, "0 of 2 layers lack their LoRA adapter, and 12 others"),
        (QUERIES, GATES, "2 of 4 layers lack their LoRA adapter, and 0 others"),
    ],
)
def test_adapters_on_other_layers(folder, attached, section, words):
    """Two layers of seven matrices each."""
    with pytest.raises(RunError, match=f"guard weights: .*{words}"):
        begin(folder, adapted(attached), section=section, resumed=True)


def with_magnitudes(model):
    """As ``use_dora`` of peft does, and as one would train biases along."""
    adapted(QUERIES)(model)
    model.model.layers[1].mlp.up_proj.bias = torch.nn.Parameter(torch.zeros(1))


@pytest.mark.parametrize(
    ("change", "section", "words"),
    [
        (with_magnitudes, QUERIES, r"1 other tensors are trained too, such as .*up_proj\.bias"),
        (
            adapted(QUERIES),
            QUERIES.model_copy(update={"rank": 8}),
            r"model\.lora\.rank is 8, and .*lora_A\.default\.weight has the shape \[4, 32\]",
        ),
    ],
)
def test_adapters_of_more_than_two_matrices_of_their_rank(folder, change, section, words):
    with pytest.raises(RunError, match=f"guard weights: .*{words}"):
        begin(folder, change, section=section, resumed=True)


def untied(model):
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())


def test_a_head_that_is_no_longer_the_embedding(tmp_path):
    save_random_model(tmp_path, seed=0)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    assert config["tie_word_embeddings"]
    begin(tmp_path)
    with pytest.raises(RunError, match=r"ties the LM head to the embedding .* two tensors"):
        begin(tmp_path, untied)
