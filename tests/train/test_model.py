import pickle

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlvr_core.api import MachineError
from rlvr_core.compiling.layers import compiled_model
from rlvr_core.config.model import ModelSection
from rlvr_core.data.uri import check_model_path
from rlvr_core.step.batch import Row, micro_batches
from rlvr_core.step.forward import completion_logprobs
from rlvr_core.step.model import enable_checkpointing, load_policy


def _model(**changes):
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 32,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "attention_dropout": 0.5,
    }
    return Qwen3ForCausalLM(Qwen3Config(**sizes | changes)).train(False)


def _batch():
    rows = [
        Row((1, 2, 3), (4, 5, 6, 7), (True,) * 4, (-1.0,) * 4, 1.0),
        Row((1, 2, 3), (8, 9), (True,) * 2, (-1.0,) * 2, -1.0),
        Row((3,), (5,), (True,), (-1.0,), 0.5),
    ]
    (batch,) = micro_batches(rows, tokens_per_micro_batch=1000)
    return batch


def _gradient(model, **options):
    model.zero_grad()
    logp_BT = completion_logprobs(model, _batch(), temperature=1.0, **options)
    logp_BT.sum().backward()
    return logp_BT.detach(), [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize(
    ("which", "passes"), [((), [2] * 5), (("every-2",), [2, 1, 2, 1, 2])], ids=["all", "every-2"]
)
def test_checkpointing_recomputes_those_layers_without_dropout(which, passes):
    plain_logp, plain_grads = _gradient(_model(num_hidden_layers=5))
    model = _model(num_hidden_layers=5)
    enable_checkpointing(model, *which)
    _gradient(model)  # the first pass also tries the LM head out
    calls = [0] * 5
    for index, layer in enumerate(model.model.layers):
        layer.mlp.register_forward_pre_hook(
            lambda *_, index=index: calls.__setitem__(index, calls[index] + 1)
        )
    logp, grads = _gradient(model)
    assert calls == passes
    assert torch.allclose(logp, plain_logp, atol=1e-6)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(grads, plain_grads, strict=True))


def test_a_model_with_checkpointing_can_be_sent_to_a_process():
    model = _model()
    enable_checkpointing(model)
    assert pickle.loads(pickle.dumps(model)).config.vocab_size == model.config.vocab_size


@pytest.mark.slow
def test_a_compiled_model_gives_the_same_gradient_and_is_used():
    plain_logp, plain_grads = _gradient(_model(num_hidden_layers=1))
    model = _model(num_hidden_layers=1)
    compiled = compiled_model(model)
    logp, grads = _gradient(model, compiled=compiled)
    assert torch._dynamo.utils.counters["frames"]["ok"] > 0
    assert torch.allclose(logp, plain_logp, atol=1e-5)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(grads, plain_grads, strict=True))


@pytest.mark.parametrize("fault", ["missing", "shape"])
def test_t30_a_folder_that_lacks_a_weight_or_has_another_shape_is_refused(tmp_path, fault):
    from safetensors.torch import load_file, save_file

    _model().save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    taken = weights.pop("model.layers.1.mlp.up_proj.weight")
    if fault == "shape":
        weights["model.layers.1.mlp.up_proj.weight"] = taken[:-1].clone()
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(MachineError, match=r"up_proj|cannot be loaded"):
        load_policy(str(tmp_path), ModelSection(path=str(tmp_path)), torch.device("cpu"))


def test_a_folder_that_is_missing_or_has_no_model_is_named_and_hub_ids_pass(tmp_path):
    for path in ("/no/such/place", "./none", "no-such-folder", "a/b/c"):
        with pytest.raises(MachineError, match="does not exist"):
            check_model_path(path)
    with pytest.raises(MachineError, match=r"config\.json"):
        check_model_path(str(tmp_path))
    check_model_path("Qwen/Qwen3-1.7B-Base")
