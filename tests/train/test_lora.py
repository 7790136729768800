"""Adapters in the policy: what they compute, what of them is trained, and what is written."""

import copy
import os

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rlvr_core.api import ConfigError, MachineError, NoConfig
from rlvr_core.compiling.layers import compiled_model
from rlvr_core.config.model import LoraSection, ModelSection, ReferenceSection, TrainSection
from rlvr_core.data.uri import check_model_path
from rlvr_core.lora import lora
from rlvr_core.lora.adapter import matrices, merged_tensors
from rlvr_core.lora.export import is_adapter, write_merged
from rlvr_core.parallel.model_adapter import adapter_of
from rlvr_core.step import checkpoint
from rlvr_core.step.batch import Row, micro_batches
from rlvr_core.step.forward import completion_logprobs
from rlvr_core.step.model import enable_checkpointing, load_policy
from rlvr_core.step.optim import AdamW, Constant, Optimizer
from rlvr_core.step.reference import SeparateModel, UnderAdapter
from tests.support.tokenizers import two_word_tokenizer

ADAMW, CONSTANT = AdamW(AdamW.Config()), Constant(NoConfig())

SIZES = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.2,
}
IDS = torch.arange(12)[None] * 5 % 48


def qwen3(seed=0):
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True)).eval()


def qwen2():
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=False)).eval()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.bias.normal_()
    return model


def gpt2():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=48, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    return GPT2LMHeadModel(config).eval()


def attach(model, *, path="somewhere", compute=torch.float32, trained=True, **options):
    section = LoraSection(**{"rank": 4, "alpha": 8, **options})
    lora.attach(model, section, seed=1, compute=compute, path=str(path), revision=None)
    if trained:
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for matrix in matrices(model).values():
                matrix.copy_(0.2 * torch.randn(matrix.shape, generator=generator))
    return model


def rows():
    prompt = (3, 4, 5)
    lengths = (5, 2, 4)
    return [
        Row(prompt, tuple(range(9, 9 + n)), (True,) * n, (-3.0,) * n, 1.0 - n / 4) for n in lengths
    ]


def logprobs(model):
    (batch,) = micro_batches(rows(), tokens_per_micro_batch=1000)
    return completion_logprobs(model, batch, temperature=0.7)


@torch.no_grad()
def logits(model):
    return model(input_ids=IDS, use_cache=False).logits


def test_an_adapter_changes_nothing_at_first_and_alone_is_trained():
    plain = qwen3()
    model = attach(copy.deepcopy(plain), trained=False)
    assert torch.equal(logits(model), logits(plain))
    optimizer = Optimizer(
        model, TrainSection(steps=9, lr=1e-2, warmup_steps=0), torch.float32, ADAMW, CONSTANT
    )
    # 7 projections in 2 layers, two matrices each
    assert len(optimizer.names) == 28
    assert all(".lora_" in name for name in optimizer.names)
    before = {name: p.clone() for name, p in model.named_parameters()}
    for step in range(2):  # in the first one B moves away from 0, in the second A moves too
        optimizer.backward(logprobs(model).sum())
        optimizer.step(step)
    for name, parameter in model.named_parameters():
        assert torch.equal(before[name], parameter) == (".lora_" not in name), name
    assert {name.partition("|")[0] for name in optimizer.state_tensors()} == set(optimizer.names)


def test_the_first_matrices_depend_on_the_seed_alone():
    first = matrices(attach(qwen3(), trained=False))
    torch.manual_seed(99)
    state = torch.get_rng_state()
    second = attach(qwen3(), trained=False)
    assert all(torch.equal(first[name], m) for name, m in matrices(second).items())
    torch.manual_seed(99)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("make", [qwen3, qwen2, gpt2])
def test_merged_weights_make_the_same_model(make):
    plain = make()
    model = attach(copy.deepcopy(plain))
    found = dict(merged_tensors(model))
    assert found.keys() == dict(plain.named_parameters()).keys()
    assert not any(tensor.requires_grad for tensor in found.values())
    apart = (logits(model) - logits(plain)).abs().max()
    plain.load_state_dict(found, strict=False)
    assert apart > 0.1
    torch.testing.assert_close(logits(plain), logits(model), rtol=1e-4, atol=1e-5)


def test_merged_weight_is_that_of_the_paper():
    """W + alpha / r * B A (Hu et al. 2021, section 4.1)."""
    model = attach(qwen3(), rank=2, alpha=6)
    layer = model.model.layers[1].mlp.down_proj
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    expected = layer.base_layer.weight + 3.0 * torch.einsum("or,ri->oi", b, a)
    found = dict(merged_tensors(model))["model.layers.1.mlp.down_proj.weight"]
    torch.testing.assert_close(found, expected)


def test_half_precision_keeps_the_base_small_and_the_adapter_exact():
    model = attach(qwen3(), compute=torch.bfloat16)
    kinds = {".lora_" in name: p.dtype for name, p in model.named_parameters()}
    assert kinds == {True: torch.float32, False: torch.bfloat16}
    layer = model.model.layers[0].self_attn.v_proj
    found = dict(merged_tensors(model))["model.layers.0.self_attn.v_proj.weight"]
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    torch.testing.assert_close(found, layer.base_layer.weight.float() + 2.0 * b @ a)


def test_unknown_target_modules_are_named_with_those_there_are():
    with pytest.raises(ConfigError, match=r"'qproj'") as caught:
        attach(qwen3(), target_modules=["qproj", "v_proj"])
    assert caught.value.complaints[0].remedy[0].startswith("did you mean: q_proj")
    assert "q_proj, k_proj" in caught.value.complaints[0].remedy[1]
    with pytest.raises(ConfigError, match="lm_head"):
        attach(qwen3(), target_modules=["lm_head"])


def test_gradient_checkpointing_stays_on_and_gives_the_same_gradient():
    model = attach(qwen3())
    logprobs(model).square().sum().backward()
    plain = {name: m.grad.clone() for name, m in matrices(model).items()}
    other = qwen3()
    enable_checkpointing(other)
    attach(other)
    lora.attach_reference(other)
    assert all(layer.training for layer in other.model.layers)
    with torch.no_grad():
        logprobs(other)  # finds out about the LM head, with a forward pass of its own
    calls = []
    other.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    logprobs(other).square().sum().backward()
    assert len(calls) == 2  # once more in the backward pass
    for name, matrix in matrices(other).items():
        torch.testing.assert_close(matrix.grad, plain[name], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(
    os.environ.get("RLVR_TEST_ALL") != "1", reason="compiles for minutes: make test-all"
)
def test_a_compiled_model_sees_which_adapter_is_at_work():
    model = attach(qwen3())
    reference = UnderAdapter(model, ReferenceSection(sync_every=1))
    with torch.no_grad():
        for matrix in matrices(model).values():
            matrix.mul_(1.5)
    compiled = compiled_model(model)
    (batch,) = micro_batches(rows(), tokens_per_micro_batch=1000)

    def seen(**options):
        return completion_logprobs(model, batch, temperature=0.7, **options)

    for _ in range(2):  # there and back
        with torch.no_grad(), reference.active():
            torch.testing.assert_close(seen(compiled=compiled), seen(), rtol=1e-4, atol=1e-4)
        with torch.no_grad(), lora.base(model):
            torch.testing.assert_close(seen(compiled=compiled), seen(), rtol=1e-4, atol=1e-4)
        grads = []
        for options in ({}, {"compiled": compiled}):
            model.zero_grad()
            seen(**options).square().sum().backward()
            grads.append([matrix.grad.clone() for matrix in matrices(model).values()])
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-3)


def test_dropout_is_at_work_in_its_block_alone_and_drawn_by_its_key():
    model = attach(qwen3(), dropout=0.5)
    assert torch.equal(logits(model), logits(model))
    state = torch.get_rng_state()

    def drawn(*key):
        with lora.dropout(model, *key), torch.no_grad():
            return logprobs(model)

    first = drawn(0, 3, 0)
    assert torch.equal(drawn(0, 3, 0), first)
    assert not any(torch.equal(drawn(*key), first) for key in [(1, 3, 0), (0, 4, 0), (0, 3, 1)])
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        assert not torch.allclose(first, logprobs(model))
    assert not any(module.training for module in model.modules())


def test_the_reference_is_the_base_and_no_second_model():
    plain = qwen3()
    model = attach(copy.deepcopy(plain), dropout=0.5)
    parameters = set(map(id, model.parameters()))
    reference = UnderAdapter(model, ReferenceSection())
    assert reference.named() == {}
    with lora.dropout(model, 0), torch.no_grad(), reference.active() as active:
        assert active is model
        assert set(map(id, model.parameters())) == parameters
        torch.testing.assert_close(logprobs(active), logprobs(plain))
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained == list(matrices(model))
    logprobs(model).sum().backward()
    assert all(matrix.grad is not None for matrix in matrices(model).values())


def test_a_reference_adapter_copies_then_averages():
    """Hand-computed: 0 -> copy; then 0.75 * 0.2 + 0.25 * 1.0 = 0.4."""
    model = attach(qwen3(), trained=False)
    reference = UnderAdapter(model, ReferenceSection(sync_every=2, ema=0.25))
    own = matrices(model)
    ref = next(theirs for name, theirs, _ in lora.pairs(model) if "lora_B" in name)
    new = own[next(name for name in own if "lora_B" in name)]
    assert ref.abs().max() == 0.0
    with torch.no_grad():
        ref.fill_(0.2)
        new.fill_(1.0)
    assert not reference.follow(1)
    assert ref.unique().tolist() == pytest.approx([0.2])
    assert reference.follow(2)
    assert ref.unique().tolist() == pytest.approx([0.4])
    assert new.unique().tolist() == [1.0]
    assert not any(theirs.requires_grad for _, theirs, _ in lora.pairs(model))
    assert list(reference.named()) == [name for name, _, _ in lora.pairs(model)]
    assert set(adapter_of(model).trained_tensors(model)) == set(own)


def test_a_reference_adapter_is_what_is_computed_with():
    model = attach(qwen3())
    reference = UnderAdapter(model, ReferenceSection(sync_every=1))
    with torch.no_grad():
        before = logprobs(model)
        for matrix in matrices(model).values():
            matrix.mul_(1.5)
        with reference.active() as active:
            assert torch.equal(logprobs(active), before)
        assert not torch.allclose(logprobs(model), before)
        reference.follow(1)
        with reference.active() as active:
            assert torch.equal(logprobs(active), logprobs(model))


@pytest.mark.parametrize(("mix", "expected"), [(1.0, 3.0), (0.25, 1.5)])
def test_a_model_of_its_own_follows_the_policy(mix, expected):
    """(1 - mix) * 1 + mix * 3, after every third update."""
    policy, model = qwen3(0), qwen3(1)
    reference = SeparateModel(model, policy, ReferenceSection(sync_every=3, ema=mix))
    with torch.no_grad():
        for ours, theirs in zip(model.parameters(), policy.parameters(), strict=True):
            ours.fill_(1.0)
            theirs.fill_(3.0)
    assert [reference.follow(version) for version in (1, 2)] == [False, False]
    assert all((p == 1.0).all() for p in model.parameters())
    assert reference.follow(3)
    assert all((p == expected).all() for p in model.parameters())
    assert all((p == 3.0).all() for p in policy.parameters())


@pytest.fixture
def base_folder(tmp_path):
    folder = tmp_path / "base"
    qwen3().save_pretrained(folder)
    two_word_tokenizer().save_pretrained(folder)
    return folder


def _policy(base_folder, **options):
    section = ModelSection(path=str(base_folder))
    model = load_policy(str(base_folder), section, torch.device("cpu"))
    return attach(model, path=base_folder, **options)


def _save(folder, model, reference=None):
    folder.mkdir()
    optimizer = Optimizer(
        model, TrainSection(steps=9, lr=1e-2, warmup_steps=0), torch.float32, ADAMW, CONSTANT
    )
    optimizer.backward(logprobs(model).sum())
    optimizer.step(0)
    checkpoint.save(
        folder,
        model=model,
        tokenizer=two_word_tokenizer(),
        compute_dtype=torch.bfloat16,
        state={"step": 1},
        snapshot=checkpoint.collect(model, optimizer, reference),
    )
    return optimizer


def test_t94_adapter_optimizer_and_reference_come_back_bit_for_bit(base_folder, tmp_path):
    def made():
        model = _policy(base_folder, trained=False, compute=torch.bfloat16)
        return model, UnderAdapter(model, ReferenceSection(sync_every=1, ema=0.5))

    model, reference = made()
    with torch.no_grad():
        for _, theirs, own in lora.pairs(model):
            own.normal_()
            theirs.normal_()
    optimizer = _save(tmp_path / "saved", model, reference)

    other, other_reference = made()
    other_optimizer = Optimizer(
        other, TrainSection(steps=9, warmup_steps=0), torch.float32, ADAMW, CONSTANT
    )
    state = checkpoint.load(
        tmp_path / "saved", model=other, optimizer=other_optimizer, reference=other_reference
    )
    assert state == {"step": 1}
    for (name, ours), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    before, after = optimizer.state_tensors(), other_optimizer.state_tensors()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_a_checkpoint_with_another_reference_is_refused(base_folder, tmp_path):
    model = _policy(base_folder)
    optimizer = _save(
        tmp_path / "saved", model, UnderAdapter(model, ReferenceSection(sync_every=1))
    )
    with pytest.raises(ValueError, match="another reference"):
        checkpoint.load(tmp_path / "saved", model=model, optimizer=optimizer)


def test_peft_and_transformers_load_what_a_checkpoint_holds(base_folder, tmp_path):
    model = _policy(base_folder)
    _save(tmp_path / "saved", model)
    assert is_adapter(tmp_path / "saved")
    assert not is_adapter(base_folder)
    base = AutoModelForCausalLM.from_pretrained(base_folder)
    loaded = PeftModel.from_pretrained(base, tmp_path / "saved")
    torch.testing.assert_close(logits(loaded), logits(model), rtol=1e-5, atol=1e-5)
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    torch.testing.assert_close(logits(found), logits(model), rtol=1e-5, atol=1e-5)
    assert PreTrainedTokenizerFast.from_pretrained(tmp_path / "saved")("a").input_ids == [1]


def test_t81_the_merged_folder_loads_as_it_is(base_folder, tmp_path):
    model = _policy(base_folder)
    _save(tmp_path / "saved", model)
    write_merged(tmp_path / "saved", tmp_path / "merged", torch.float32)
    loaded, info = AutoModelForCausalLM.from_pretrained(
        tmp_path / "merged", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    torch.testing.assert_close(logits(loaded), logits(model), rtol=1e-4, atol=1e-5)
    merged = dict(merged_tensors(model))
    saved = load_file(tmp_path / "merged" / "model.safetensors")
    assert saved.keys() == merged.keys()
    for name, tensor in merged.items():
        torch.testing.assert_close(saved[name], tensor)
    with pytest.raises(ConfigError, match="exists"):
        write_merged(tmp_path / "saved", tmp_path / "merged", torch.float32)
    assert not list(tmp_path.glob(".tmp-*"))


def test_t30_an_adapter_is_refused_on_other_weights_than_it_was_trained_on(base_folder, tmp_path):
    model = _policy(base_folder)
    optimizer = _save(tmp_path / "saved", model)
    changed = AutoModelForCausalLM.from_pretrained(base_folder)
    with torch.no_grad():
        changed.model.layers[1].mlp.up_proj.weight.mul_(1.01)
    changed.save_pretrained(base_folder)
    with pytest.raises(MachineError, match="other weights"):
        write_merged(tmp_path / "saved", tmp_path / "merged", torch.float32)
    assert not (tmp_path / "merged").exists()
    with pytest.raises(ValueError, match="other weights"):
        checkpoint.load(tmp_path / "saved", model=_policy(base_folder), optimizer=optimizer)


def test_an_adapter_of_which_the_base_is_gone_says_so(base_folder, tmp_path):
    _save(tmp_path / "saved", _policy(base_folder))
    base_folder.rename(tmp_path / "moved")
    with pytest.raises(MachineError, match="does not exist"):
        write_merged(tmp_path / "saved", tmp_path / "merged", torch.float32)


def test_an_adapter_is_never_unpickled(base_folder, tmp_path):
    _save(tmp_path / "saved", _policy(base_folder))
    (tmp_path / "saved" / "adapter_model.safetensors").rename(
        tmp_path / "saved" / "adapter_model.bin"
    )
    with pytest.raises(MachineError, match=r"no adapter_model\.safetensors"):
        write_merged(tmp_path / "saved", tmp_path / "merged", torch.float32)


def test_an_adapter_is_no_model_to_train(base_folder, tmp_path):
    _save(tmp_path / "saved", _policy(base_folder))
    with pytest.raises(MachineError, match="is a LoRA adapter") as caught:
        check_model_path(str(tmp_path / "saved"))
    assert "--merge" in caught.value.complaints[0].remedy[0]
