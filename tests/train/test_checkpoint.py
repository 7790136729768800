import json

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from rlvr_core.api import MachineError
from rlvr_core.config.model import TrainSection
from rlvr_core.step import checkpoint
from rlvr_core.step.optim import Optimizer
from tests.support.tokenizers import two_word_tokenizer
from tests.support.train.small import ADAMW, CONSTANT, small_model


@pytest.fixture
def tokenizer():
    return two_word_tokenizer()


def _model(seed, *, tied=True):
    shape = {"vocab_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    return small_model(seed, **shape, tie_word_embeddings=tied)


def _optimizer(model, dtype=torch.float32):
    train = TrainSection(steps=10, lr=1e-2, warmup_steps=0)
    optimizer = Optimizer(model, train, dtype, ADAMW, CONSTANT)
    optimizer.backward(model(torch.arange(8)[None]).logits.square().mean())
    optimizer.step(0)
    return optimizer


def _save(folder, model, tokenizer, dtype=torch.float32, optimizer=None, state=None):
    checkpoint.save(
        folder,
        snapshot=checkpoint.collect(model, optimizer or _optimizer(model, dtype)),
        model=model,
        tokenizer=tokenizer,
        compute_dtype=dtype,
        state=state or {},
    )


def _load(folder, model, dtype=torch.float32):
    """What is stored beside the tensors, and an optimizer with its state."""
    train = TrainSection(steps=10, warmup_steps=0)
    optimizer = Optimizer(model, train, dtype, ADAMW, CONSTANT)
    return checkpoint.load(folder, model=model, optimizer=optimizer), optimizer


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_t94_everything_comes_back_bit_for_bit(tmp_path, tokenizer, dtype, tied):
    model = _model(0, tied=tied)
    optimizer = _optimizer(model, dtype)
    torch.manual_seed(77)
    state = {"step": 3, "version": 2, "sampler": {"epoch": 1}}
    _save(tmp_path, model, tokenizer, dtype, optimizer, state)
    expected_draw = torch.rand(3)

    other = _model(1, tied=tied)
    torch.manual_seed(5)
    found, other_optimizer = _load(tmp_path, other, dtype)
    assert found == state
    assert torch.equal(torch.rand(3), expected_draw)
    for (name, ours), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    before, after = optimizer.state_tensors(), other_optimizer.state_tensors()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("tied", [True, False])
def test_t81_folder_loads_in_transformers_as_it_is(tmp_path, tokenizer, tied):
    model = _model(0, tied=tied)
    _save(tmp_path, model, tokenizer)
    loaded, info = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    ids = torch.arange(10)[None]
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert PreTrainedTokenizerFast.from_pretrained(tmp_path)("a").input_ids == [1]


def test_half_precision_export_keeps_the_master_apart(tmp_path, tokenizer):
    model = _model(0)
    _save(tmp_path, model, tokenizer, torch.bfloat16)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.dtype == torch.bfloat16
    assert (tmp_path / "trainer" / "master.safetensors").is_file()


def test_checkpoint_of_another_model_is_refused(tmp_path, tokenizer):
    model = _model(0)
    _save(tmp_path, model, tokenizer)
    with pytest.raises(ValueError, match="another model"):
        _load(tmp_path, _model(0, tied=False))


def test_a_generation_config_that_transformers_would_not_save_is_written_as_it_was_read(
    tmp_path, tokenizer
):
    """Temperature without do_sample, as many published models have it."""
    made = tmp_path / "made"
    _model(0).save_pretrained(made)
    untidy = {"temperature": 0.6, "top_p": 0.9, "eos_token_id": 0}
    (made / "generation_config.json").write_text(json.dumps(untidy))
    model = AutoModelForCausalLM.from_pretrained(made)
    checkpoint.rehearse(model, tokenizer, torch.float32)
    _save(tmp_path / "made", model, tokenizer)
    written = json.loads((made / "generation_config.json").read_text())
    assert untidy.items() <= written.items()
    again = AutoModelForCausalLM.from_pretrained(made).generation_config
    assert (again.temperature, again.top_p) == (0.6, 0.9)


@pytest.mark.parametrize("part", ["tokenizer", "configuration"])
def test_what_a_checkpoint_could_not_write_is_said_before_the_first_step(tokenizer, part):
    class Refusing:
        def save_pretrained(self, folder):
            raise ValueError("odd field\nmore")

    model = _model(0)
    if part == "configuration":
        model.config.odd = object()
    refused = Refusing() if part == "tokenizer" else tokenizer
    with pytest.raises(MachineError, match="no checkpoint of this model could be written"):
        checkpoint.rehearse(model, refused, torch.float32)
