"""Optimizers other than AdamW, against their formulas written out in float64."""

import math
from types import SimpleNamespace

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlvr_algos import muon
from rlvr_algos.adamw8bit import AdamW8bit
from rlvr_algos.muon import STACK, Muon, _stacks, newton_schulz
from rlvr_core.api import NoConfig, TrainedParameter
from rlvr_core.config.model import TrainSection
from rlvr_core.step.optim import Constant, Optimizer, trained_parameters

CONSTANT = Constant(NoConfig())
TRAIN = TrainSection(steps=10, lr=0.03, warmup_steps=0, max_grad_norm=None)


def _model(dtype=torch.float64):
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Embedding(7, 4), torch.nn.Linear(4, 6)).to(dtype)


def _gradients(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


def _by_hand(weight, gradients, *, momentum, decay, lr):
    """Muon's updates of one matrix; Newton-Schulz as a polynomial of the singular values."""
    moment = torch.zeros_like(weight)
    for gradient in gradients:
        weight = weight * (1 - lr * decay)
        moment = momentum * moment + gradient
        update = gradient + momentum * moment
        u, s, v = torch.linalg.svd(update / torch.sqrt((update**2).sum()), full_matrices=False)
        for _ in range(5):
            s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
        weight = weight - lr * 0.2 * math.sqrt(max(weight.shape)) * (u * s) @ v
    return weight


def test_muon_moves_hidden_matrices_by_its_formula_and_the_rest_by_adamw():
    model = _model()
    made = Muon(Muon.Config(momentum=0.9, weight_decay=0.1, betas=(0.8, 0.9), eps=1e-3))
    optimizer = Optimizer(model, TRAIN, torch.float32, made, CONSTANT)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    gradients = {name: [] for name in before}
    for step in range(3):
        _gradients(model, step)
        for name, parameter in model.named_parameters():
            gradients[name].append(parameter.grad.clone())
        assert optimizer.step(step).applied
    expected = _by_hand(before["1.weight"], gradients["1.weight"], momentum=0.9, decay=0.1, lr=0.03)
    torch.testing.assert_close(model[1].weight.detach(), expected, rtol=0, atol=1e-6)
    for name in ("0.weight", "1.bias"):
        twin = before[name].clone().requires_grad_(True)
        adamw = torch.optim.AdamW([twin], lr=0.03, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1)
        for gradient in gradients[name]:
            twin.grad = gradient
            adamw.step()
        found = dict(model.named_parameters())[name].detach()
        torch.testing.assert_close(found, twin.detach(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (6, 6)])
def test_newton_schulz_brings_singular_values_near_one_and_keeps_the_vectors(shape):
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    found = newton_schulz(matrix, 5)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    inner = u.T @ found @ v.T
    torch.testing.assert_close(inner, torch.diag(inner.diagonal()), rtol=0, atol=1e-10)
    assert inner.diagonal().min() > 0.3  # a very small one is not there after five iterations
    assert inner.diagonal().max() < 1.3


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_a_stack_of_matrices_is_each_by_itself(shape):
    stack = torch.randn(6, *shape, generator=torch.Generator().manual_seed(1)).double()
    together = newton_schulz(stack, 5)
    for one, found in zip(stack, together, strict=True):
        torch.testing.assert_close(found, newton_schulz(one, 5), rtol=0, atol=1e-12)


def test_on_a_gpu_matrices_of_a_shape_are_stacked_up_to_a_size():
    """By hand: of 2^24 numbers four fit into 2^26, of 2^25 two; one larger than all is alone."""
    assert STACK == 1 << 26

    def weights(device):
        sides = [(1 << 12, 1 << 12), (1 << 12, 1 << 13), (1 << 14, 1 << 13)]
        order = [0, 1, 0, 0, 2, 0, 1, 0, 1, 2]
        return [
            SimpleNamespace(shape=torch.Size(sides[n]), device=torch.device(device)) for n in order
        ]

    assert _stacks(weights("cuda")) == [[0, 2, 3, 5], [7], [1, 6], [8], [4], [9]]
    assert _stacks(weights("cpu")) == [[0], [2], [3], [5], [7], [1], [6], [8], [4], [9]]


def test_muon_of_stacks_moves_each_matrix_by_its_formula(monkeypatch):
    """Seven matrices of two shapes, one of them without a gradient, in stacks of at most three."""
    monkeypatch.setattr(muon, "STACK", 3 * 24)
    monkeypatch.setattr(muon, "_stacks", lambda given: STACKS([*map(_on_gpu, given)]))
    draw = torch.Generator().manual_seed(5)
    shapes = [(4, 6), (6, 4), (4, 6), (4, 6), (6, 4), (4, 6), (4, 6)]
    weights = [torch.randn(s, generator=draw).double().requires_grad_() for s in shapes]
    before = [weight.detach().clone() for weight in weights]
    named = [TrainedParameter(f"{n}", weight, True) for n, weight in enumerate(weights)]
    optimizer = Muon(Muon.Config(momentum=0.9, weight_decay=0.1)).build(named, 0.03)
    gradients = [[] for _ in weights]
    for _ in range(3):
        for place, weight in enumerate(weights):
            if place != 3:
                weight.grad = torch.randn(weight.shape, generator=draw).double()
                gradients[place].append(weight.grad.clone())
        optimizer.step()
    for place, weight in enumerate(weights):
        given = gradients[place]
        expected = _by_hand(before[place], given, momentum=0.9, decay=0.1, lr=0.03)
        exact = before[place] if place == 3 else expected
        torch.testing.assert_close(weight.detach(), exact, rtol=0, atol=1e-6)


STACKS = _stacks


def _on_gpu(weight):
    return SimpleNamespace(shape=weight.shape, device=torch.device("cuda"))


def test_hidden_matrices_are_neither_embedding_nor_lm_head():
    config = Qwen3Config(
        vocab_size=11,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        tie_word_embeddings=False,
    )
    found = {p.name: p.hidden_matrix for p in trained_parameters(Qwen3ForCausalLM(config))}
    hidden = {name.rpartition(".")[0].rpartition(".")[2] for name, flag in found.items() if flag}
    assert hidden == {
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    }
    assert not found["lm_head.weight"]
    assert not found["model.embed_tokens.weight"]


def _eight_bits():
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    return AdamW8bit(AdamW8bit.Config(eps=1e-8))


@pytest.mark.parametrize("made", [lambda: Muon(Muon.Config()), _eight_bits])
def test_resuming_is_exact(made):
    def model():
        torch.manual_seed(3)
        return torch.nn.Linear(128, 64)

    def advance(model, optimizer, steps):
        for step in steps:
            _gradients(model, step)
            optimizer.step(step)

    straight = model()
    optimizer = Optimizer(straight, TRAIN, torch.float32, made(), CONSTANT)
    advance(straight, optimizer, range(3))
    weights = {name: p.detach().clone() for name, p in straight.named_parameters()}
    state = {key: value.clone() for key, value in optimizer.state_tensors().items()}
    advance(straight, optimizer, range(3, 6))
    resumed = model()
    resumed.load_state_dict(weights)
    other = Optimizer(resumed, TRAIN, torch.float32, made(), CONSTANT)
    other.load_state_tensors(state)
    advance(resumed, other, range(3, 6))
    assert torch.equal(resumed.weight, straight.weight)
    assert torch.equal(resumed.bias, straight.bias)


def test_moments_of_eight_bits_take_a_byte_and_follow_adamw():
    builder = _eight_bits()
    torch.manual_seed(3)
    model = torch.nn.Linear(128, 64)
    twin = model.weight.detach().clone().requires_grad_(True)
    optimizer = Optimizer(model, TRAIN, torch.float32, builder, CONSTANT)
    adamw = torch.optim.AdamW([twin], lr=0.03, eps=1e-8, weight_decay=0.0)
    begun = twin.detach().clone()
    for step in range(4):
        _gradients(model, step)
        twin.grad = model.weight.grad.clone()
        optimizer.step(step)
        adamw.step()
    state = optimizer.state_tensors()
    assert state["weight|state1"].dtype == state["weight|state2"].dtype == torch.uint8
    error = (model.weight - twin).norm() / (twin - begun).norm()
    assert error < 0.1


@pytest.mark.parametrize("builder", [Muon(Muon.Config())])
def test_a_gradient_that_is_not_finite_leaves_no_trace(builder):
    model = _model(torch.float32)
    optimizer = Optimizer(model, TRAIN, torch.float32, builder, CONSTANT)
    before = model[1].weight.detach().clone()
    _gradients(model, 0)
    model[1].weight.grad[0, 0] = float("nan")
    assert not optimizer.step(0).applied
    assert torch.equal(model[1].weight.detach(), before)
    assert optimizer.state_tensors() == {}
