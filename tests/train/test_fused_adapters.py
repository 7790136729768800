"""LoRA's layers in few kernels, against peft's own and float64. N tokens, I inputs, O outputs."""

import copy
import functools
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

sys.path.insert(0, str(Path(__file__).parent))

from small import Calls  # type: ignore

from rlvr_core.builtin.lora import lora
from rlvr_core.builtin.lora.fused import _Product, fused_adapters
from rlvr_core.config.model import LoraSection
from rlvr_core.step.model import enable_checkpointing

SIZES = {
    "vocab_size": 48, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1,
}  # fmt: skip
IDS = torch.arange(24).view(2, 12) * 5 % 48


def policy(dtype=torch.float32, *, dropout=0.0, alpha=6):
    """Biases, and adapters that change something."""
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(**SIZES)).eval()
    section = LoraSection(rank=4, alpha=alpha, dropout=dropout)
    lora.attach(model, section, seed=0, compute=dtype, path="toy", revision=None)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name or name.endswith("bias"):
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=draw))
    return model


def fused(model, compiled=None):
    return fused_adapters(SimpleNamespace(model=model, compiled=compiled))


def run(model, dtype):
    """Logits and the gradients of the adapters."""
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        logits = model(input_ids=IDS, use_cache=False).logits
    model.zero_grad()
    (logits.double().log_softmax(-1)[..., 3] * torch.arange(24.0).view(2, 12)).sum().backward()
    grads = [p.grad.double() for p in model.parameters() if p.grad is not None]
    assert len(grads) == 2 * 7 * 2
    return [logits.detach().double(), *grads]


@pytest.mark.parametrize("again", [False, True])
def test_in_float32_it_is_what_peft_computes(again):
    found = []
    for change in (lambda _: None, fused):
        model = policy()
        if again:
            enable_checkpointing(model, "all")
            model.train()
        change(model)
        found.append(run(model, torch.float32))
    for ours, theirs in zip(*reversed(found), strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()


def layer_of(dtype, **options):
    model = policy(dtype, **options)
    fused(model)
    return model, model.model.layers[0].self_attn.q_proj


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_a_layer_is_nearer_to_float64_than_peft_s(dtype):
    """Output and the gradients of input, A and B, in root mean square over 40 inputs."""
    _, layer = layer_of(dtype)
    exact = copy.deepcopy(layer).double()
    matrices = [
        [one.lora_A["default"].weight, one.lora_B["default"].weight] for one in (layer, exact)
    ]
    errors = torch.zeros(2, 4, dtype=torch.float64)
    for seed in range(40):
        draw = torch.Generator().manual_seed(seed)
        x, along = (torch.randn(2, 9, 32, generator=draw).to(dtype) for _ in range(2))
        found = []
        for forward, given, own in (
            (exact, x.double(), matrices[1]),
            (layer, x, matrices[0]),
            (functools.partial(type(layer).forward, layer), x, matrices[0]),
        ):
            given = given.clone().requires_grad_()
            with torch.autocast("cpu", dtype=dtype, enabled=given.dtype == dtype):
                out = forward(given)
            found.append([out, *torch.autograd.grad(out, [given, *own], along.to(out.dtype))])
        for place in (0, 1):
            pairs = zip(found[place + 1], found[0], strict=True)
            errors[place] += torch.stack(
                [(a.double() - b).detach().square().sum() for a, b in pairs]
            )
    assert (errors[0] < errors[1]).all(), errors.sqrt()


def test_kernels_of_a_layer_counted_by_hand():
    """Three products, the third of which adds; casts of both matrices; and what they give back."""
    _, layer = layer_of(torch.bfloat16)
    x = torch.randn(2, 3, 32).bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16), Calls() as forward:
        out = layer(x)
    products = ("mm", "addmm", "addmm_")
    assert sum(forward.counts[name] for name in products) == 3
    assert forward.counts["_to_copy"] == 2
    assert not {"mul", "add", "add_"} & {*forward.counts}
    with Calls() as backward:
        out.backward(torch.ones_like(out))
    # by the layer, by B, of B, by A, of A
    assert sum(backward.counts[name] for name in products) == 5
    assert backward.counts["_to_copy"] == 2
    assert not {"mul", "add", "add_"} & {*backward.counts}


def test_gradients_worked_out_by_autograd_in_float64():
    draw = torch.Generator().manual_seed(0)
    shapes = [(2, 3, 5), (4, 5), (4,), (2, 5), (4, 2)]
    x, weight, bias, a, b = (torch.randn(s, generator=draw).double() for s in shapes)
    given = [one.requires_grad_() for one in (x, a, b)]
    along = torch.randn(2, 3, 4, generator=draw).double()
    outs = _Product.apply(x, weight, bias, a, b, 0.7), x @ weight.T + bias + 0.7 * x @ a.T @ b.T
    torch.testing.assert_close(*outs, rtol=0, atol=1e-12)
    ours, theirs = (torch.autograd.grad(out, given, along) for out in outs)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def taken(monkeypatch):
    """Whether a pass takes the fused product."""
    seen = []
    plain = _Product.apply
    monkeypatch.setattr(_Product, "apply", lambda *given: seen.append(1) or plain(*given))
    return seen


def test_without_the_adapters_it_is_the_base(monkeypatch):
    seen = taken(monkeypatch)
    model, layer = layer_of(torch.float32)
    x = torch.randn(3, 32)
    with lora.base(model):
        assert torch.equal(layer(x), layer.base_layer(x))
    assert not seen
    layer(x)
    assert seen


def test_the_reference_has_its_own_adapter():
    model, layer = layer_of(torch.float32)
    lora.attach_reference(model)
    x = torch.randn(3, 32)
    before = layer(x)
    with torch.no_grad():
        layer.lora_B["default"].weight.mul_(2)
    with lora.reference(model):
        assert torch.equal(layer(x), before)
    base = layer.base_layer(x)
    torch.testing.assert_close(layer(x) - base, 2 * (before - base), rtol=0, atol=1e-5)


def test_dropout_is_left_to_peft(monkeypatch):
    seen = taken(monkeypatch)
    model, layer = layer_of(torch.float32, dropout=0.5)
    x = torch.ones(3, 32)
    with lora.dropout(model, 1):
        first = layer(x)
    assert not seen
    assert not torch.equal(first, layer(x))
    assert seen


def test_half_precision_without_autocast_is_left_to_peft(monkeypatch):
    seen = taken(monkeypatch)
    _, layer = layer_of(torch.bfloat16)
    assert layer(torch.ones(3, 32).bfloat16()).dtype == torch.bfloat16
    assert not seen


def test_layers_that_are_not_linear_keep_their_own(monkeypatch):
    seen = taken(monkeypatch)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=48)).eval()
    section = LoraSection(rank=2, alpha=2, dropout=0.0)
    lora.attach(model, section, seed=0, compute=torch.float32, path="toy", revision=None)
    expected = model(input_ids=IDS).logits
    fused(model)
    assert torch.equal(model(input_ids=IDS).logits, expected)
    assert not seen


def test_compiled_layers_are_left_alone_and_what_is_fused_is_said():
    model = policy()
    report = fused(model, compiled=object())
    assert (report.record, report.lines) == ({"fused": 0}, ())
    assert not any("forward" in vars(one) for one in model.modules())
    report = fused(model)
    assert (report.name, report.record) == ("adapters", {"fused": 14})
    assert report.lines == ("LoRA's products with little beside them: 14 layers",)


def test_a_copy_computes_with_its_own_adapters():
    model, _ = layer_of(torch.float32)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            if "lora_B" in name:
                parameter.zero_()
    base, _ = layer_of(torch.float32)
    with lora.base(base):
        expected = base(input_ids=IDS).logits
    torch.testing.assert_close(twin(input_ids=IDS).logits, expected, rtol=1e-5, atol=1e-6)
    assert (model(input_ids=IDS).logits - expected).abs().max() > 1e-3
