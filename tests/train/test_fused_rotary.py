"""Rotary positions in few kernels: which functions are the usual one, and what it gives."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers.models.cohere import modeling_cohere
from transformers.models.glm import modeling_glm
from transformers.models.llama import modeling_llama
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3

from rlvr_core.builtin.rotary.fused import _Fused, fuse_rotary, fused_rotary, is_usual, rotated

sys.path.insert(0, str(Path(__file__).parent))
from small import small_model  # type: ignore

OWN = modeling_qwen3.apply_rotary_pos_emb


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch):
    monkeypatch.setattr(modeling_qwen3, "apply_rotary_pos_emb", OWN)


def given(dtype, seed=0):
    draw = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(2, h, 5, 8, generator=draw).to(dtype).requires_grad_() for h in (4, 2))
    angle_BND = 3 * torch.randn(2, 5, 8, generator=draw)
    along = [torch.randn(2, h, 5, 8, generator=draw).to(dtype) for h in (4, 2)]
    return q, k, angle_BND.cos().to(dtype), angle_BND.sin().to(dtype), along


def by_hand(x, cos, sin):
    """Element by element, in float64: each of a pair (d, d + 4) is turned."""
    out = torch.empty_like(x, dtype=torch.float64)
    for d in range(8):
        other, sign = (d + 4, -1) if d < 4 else (d - 4, 1)
        out[..., d] = x[..., d] * cos[:, None, :, d] + sign * x[..., other] * sin[:, None, :, d]
    return out


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_queries_and_keys_are_turned_and_so_are_gradients(dtype):
    q, k, cos, sin, along = given(dtype)
    ours = rotated(q, k, cos, sin)
    exact = [by_hand(x.double(), cos.double(), sin.double()) for x in (q, k)]
    found, expected = (
        [*outs, *torch.autograd.grad(outs, (q, k), [a.to(outs[0].dtype) for a in along])]
        for outs in (ours, exact)
    )
    # a product is rounded, and then its sum with the other; here a GPU rounds only the sum
    bound = 2 * torch.finfo(dtype).eps
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == dtype
        assert float((mine - theirs).detach().abs().max()) <= bound * 6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_is_nearer_than_the_models_own(dtype):
    errors = torch.zeros(2, 4, dtype=torch.float64)
    for seed in range(20):
        q, k, cos, sin, along = given(dtype, seed)
        exact = [by_hand(x.double(), cos.double(), sin.double()) for x in (q, k)]
        gradients = torch.autograd.grad(exact, (q, k), [a.double() for a in along])
        for place, function in enumerate((rotated, OWN)):
            outs = function(q, k, cos, sin)
            found = [*outs, *torch.autograd.grad(outs, (q, k), along)]
            for n, (mine, theirs) in enumerate(zip(found, [*exact, *gradients], strict=True)):
                errors[place, n] += (mine.double() - theirs.double()).square().sum()
    assert (errors[0] < errors[1]).all()


@pytest.mark.parametrize("module", [modeling_qwen3, modeling_qwen2, modeling_llama])
def test_the_usual_function_is_known(module):
    assert is_usual(module.apply_rotary_pos_emb)


def with_a_fault(q, k, cos, sin, unsqueeze_dim=1):
    turned_q, turned_k = OWN(q, k, cos, sin, unsqueeze_dim)
    return turned_q, turned_k * 1.001


def with_half_a_gradient(q, k, cos, sin, unsqueeze_dim=1):
    return OWN(q, k.detach() / 2 + k / 2, cos, sin, unsqueeze_dim)


def with_other_arguments(q, k, freqs_cis):
    return q, k


@pytest.mark.parametrize(
    "function",
    [
        modeling_cohere.apply_rotary_pos_emb,  # pairs are neighbours
        modeling_glm.apply_rotary_pos_emb,  # a part of the head is turned
        with_a_fault,
        with_half_a_gradient,
        with_other_arguments,
    ],
)
def test_another_function_is_left_alone(function):
    assert not is_usual(function)


def test_a_models_function_is_replaced_once_and_says_where():
    model, reference = small_model(), small_model()
    trainer = SimpleNamespace(
        model=model,
        reference=SimpleNamespace(own_model=reference),
        objective=SimpleNamespace(teachers=[]),
    )
    name = modeling_qwen3.__name__
    report = fused_rotary(trainer)
    assert (report.name, report.record) == ("rotary", {"fused": [name]})
    taken = sys.modules[name].apply_rotary_pos_emb
    assert isinstance(taken, _Fused)
    assert taken.own is OWN
    assert fuse_rotary(model) == {name}
    assert sys.modules[name].apply_rotary_pos_emb is taken


def test_a_cpu_computes_what_it_did():
    ids = torch.arange(10)[None]
    model = small_model()
    before = model(input_ids=ids).logits
    fuse_rotary(model)
    assert torch.equal(model(input_ids=ids).logits, before)


class Card:
    """Says that a tensor is on a GPU."""

    def __init__(self, tensor):
        self.tensor, self.dtype, self.shape, self.is_cuda = tensor, tensor.dtype, tensor.shape, True


def test_what_is_not_as_usual_is_left_to_the_model(monkeypatch):
    said = []
    fused = _Fused(lambda *given, **more: said.append("own"))
    monkeypatch.setattr("rlvr_core.builtin.rotary.fused.rotated", lambda *_: said.append("fused"))
    q, k, cos, sin, _ = given(torch.bfloat16)
    cards = [Card(x) for x in (q, k, cos, sin)]
    fused(*cards)
    assert said == ["fused"]
    fused(*cards, unsqueeze_dim=2)
    fused(Card(q.float()), *cards[1:])  # dtypes that differ
    fused(*cards[:2], Card(cos[..., :4]), Card(sin[..., :4]))  # a part of the head
    fused(q, *cards[1:])  # on a CPU
    assert said == ["fused", *["own"] * 4]
