"""A reference whose layers wait in host memory: the same numbers, one layer on the device."""

import copy

import pytest
import torch
from pydantic import ValidationError
from transformers import MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

from rlvr_core.api import MachineError
from rlvr_core.config.model import ReferenceSection
from rlvr_core.parallel.offload import offload
from rlvr_core.step.batch import Row, micro_batches
from rlvr_core.step.forward import completion_logprobs

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.2,
}
MODELS = {
    "qwen3": lambda tie: Qwen3ForCausalLM(
        Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=tie)
    ),
    "mistral": lambda tie: MistralForCausalLM(MistralConfig(**SIZES, tie_word_embeddings=tie)),
}


def batch():
    rows = [Row((3, 4, 5), tuple(range(6, 6 + n)), (True,) * n, (0.0,) * n, 0.0) for n in (2, 5, 7)]
    (one,) = micro_batches(rows, tokens_per_micro_batch=999)
    return one


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("kind", MODELS)
def test_log_probs_are_those_of_the_whole_model_and_weights_are_swapped(kind, tie):
    torch.manual_seed(0)
    whole = MODELS[kind](tie).eval().requires_grad_(False)
    expected = completion_logprobs(whole, batch(), temperature=0.7)
    model = copy.deepcopy(whole)
    layers = offload(model, torch.device("cpu"))
    assert len(layers) == 3
    parameter = model.model.layers[1].mlp.up_proj.weight
    at_home, inside, elsewhere = parameter.data_ptr(), [], []

    def look(*_):
        inside.append(parameter.data_ptr())
        elsewhere.append(model.model.layers[0].mlp.up_proj.weight.data_ptr())

    model.model.layers[1].mlp.register_forward_hook(look)
    other = model.model.layers[0].mlp.up_proj.weight.data_ptr()
    embedding = model.get_input_embeddings().weight.data_ptr()
    before = [layer.fetched for layer in layers]
    found = completion_logprobs(model, batch(), temperature=0.7)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    times = [now.fetched - then for now, then in zip(layers, before, strict=True)]
    assert times[0] >= 1
    assert len(set(times)) == 1  # every layer as often as every other
    assert len(inside) == times[1]
    assert at_home not in inside  # it computed with a copy
    assert set(elsewhere) == {other}  # while the others were at home
    assert parameter.data_ptr() == at_home
    assert model.get_input_embeddings().weight.data_ptr() == embedding
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in whole.state_dict().items())


def test_a_layer_that_fails_goes_home_too():
    model = MODELS["mistral"](True).requires_grad_(False)
    offload(model, torch.device("cpu"))
    parameter = model.model.layers[1].mlp.up_proj.weight
    at_home = parameter.data_ptr()

    def fail(*_):
        assert parameter.data_ptr() != at_home
        raise RuntimeError("out of memory")

    model.model.layers[1].mlp.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        completion_logprobs(model, batch(), temperature=1.0)
    assert parameter.data_ptr() == at_home


def test_a_model_without_known_layers_is_refused():
    model = MODELS["mistral"](True)
    model._no_split_modules = None
    with pytest.raises(MachineError, match="does not say what its layers are"):
        offload(model, torch.device("cpu"))


def test_a_reference_that_moves_is_not_offloaded():
    with pytest.raises(ValidationError, match="a reference that moves"):
        ReferenceSection(offload=True, sync_every=2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_the_device_holds_one_layer_at_a_time():
    sizes = SIZES | {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 12}
    sizes |= {"num_attention_heads": 8, "num_key_value_heads": 8}
    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**sizes)).eval().requires_grad_(False)
    layer = sum(p.numel() * p.element_size() for p in model.model.layers[0].parameters())
    device = torch.device("cuda")
    whole = copy.deepcopy(model).to(device)
    rows = batch().to(device)
    expected = completion_logprobs(whole, rows, temperature=1.0)
    del whole
    torch.cuda.empty_cache()
    base = torch.cuda.memory_allocated()
    offload(model, device)
    assert torch.cuda.memory_allocated() - base < layer
    torch.cuda.reset_peak_memory_stats()
    found = completion_logprobs(model, rows, temperature=1.0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert torch.cuda.max_memory_allocated() - base < 2.5 * layer
    assert torch.cuda.memory_allocated() - base < layer
