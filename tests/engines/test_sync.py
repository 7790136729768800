import math

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlvr_core.api import RunError
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.engines.vllm.probe import check_probe, probe_prompt, trainer_logprobs


def small_model(*, tied=True, dropout=0.0):
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=50,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            tie_word_embeddings=tied,
            attention_dropout=dropout,
            initializer_range=0.2,
        )
    )


@pytest.mark.parametrize("tied", [True, False])
def test_source_gives_every_weight_once_by_its_checkpoint_name(tied, tmp_path):
    from safetensors.torch import load_file

    model = small_model(tied=tied)
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    given = list(ModuleSource(model).tensors())
    assert len(given) == len(dict(given))
    assert dict(given).keys() == saved.keys()
    assert ("lm_head.weight" in saved) != tied
    for name, tensor in given:
        assert torch.equal(tensor, saved[name])
        assert not tensor.requires_grad
        assert tensor.data_ptr() == model.get_parameter(name).data_ptr()  # no copy


def test_source_gathers_sharded_parameters():
    class Sharded(torch.nn.Parameter):
        def full_tensor(self):
            return torch.cat([self.data, self.data])

    module = torch.nn.Module()
    module.weight = Sharded(torch.ones(2))
    ((name, tensor),) = ModuleSource(module).tensors()
    assert (name, tensor.tolist()) == ("weight", [1.0, 1.0, 1.0, 1.0])


def test_trainer_logprobs_are_those_of_a_plain_forward_and_leave_no_trace():
    model = small_model(dropout=0.5).train()
    model.model.layers[1].eval()  # a mixed state, to be found again
    modes = [module.training for module in model.modules()]
    prompt, tokens = (3, 4, 5, 6), (7, 8, 9)
    found = trainer_logprobs(model, prompt, tokens, torch.float32)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())

    logits = small_model().eval()(torch.tensor([[*prompt, *tokens]])).logits[0]
    for position, token in enumerate(tokens):
        row = logits[len(prompt) - 1 + position].double()
        expected = row[token] - torch.logsumexp(row, 0)
        assert found[position] == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize(
    ("difference", "dtype", "device", "accepted"),
    [
        (5e-4, torch.float32, "cpu", True),
        (5e-3, torch.float32, "cpu", False),
        (5e-3, torch.float32, "cuda", True),
        (5e-2, torch.float32, "cuda", False),
        (0.2, torch.bfloat16, "cuda", True),
        (0.5, torch.bfloat16, "cpu", False),
        (0.05, torch.float16, "cuda", True),
        (0.2, torch.float16, "cuda", False),
        (math.nan, torch.bfloat16, "cuda", False),
        (math.inf, torch.float32, "cpu", False),
    ],
)
def test_probe_tells_rounding_from_old_weights(difference, dtype, device, accepted):
    trainer = [-1.0, -2.0]
    engine = [-1.0 - difference, -2.0 + difference]  # signs must not cancel
    if accepted:
        check_probe(engine, trainer, dtype, torch.device(device), 3)
    else:
        with pytest.raises(RunError, match="sync to version 3"):
            check_probe(engine, trainer, dtype, torch.device(device), 3)


class Tokenizer:
    all_special_ids = (0, 1, 5)

    def __len__(self):
        return 40


def test_probe_prompt_has_ordinary_tokens_of_the_model_only():
    prompt = probe_prompt(Tokenizer(), 30, 200)
    assert len(prompt) == 200
    assert prompt == probe_prompt(Tokenizer(), 30, 200)
    assert set(prompt) <= set(range(30)) - {0, 1, 5}
    assert len(set(prompt)) > 10
