import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rlvr_core.step.logprobs import fused_logprobs
from tests.support.train.small import Calls

N, H, V = 37, 16, 1501
MEMORY = ("-m", "tests.support.losses.logprobs_memory")


def draw(dtype=torch.float64, bias=False, n=N):
    torch.manual_seed(3)
    hidden = torch.randn(n, H, dtype=torch.float64) / 2
    weight = torch.randn(V, H, dtype=torch.float64)
    extra = torch.randn(V, dtype=torch.float64) if bias else None
    leaves = [None if x is None else x.to(dtype).requires_grad_() for x in (hidden, weight, extra)]
    return leaves, torch.randint(V, (n,)), torch.randn(n)


def oracle(leaves, target, temperature=1.0):
    """The definition, in float64 from whatever product the dtype gives."""
    hidden, weight, bias = leaves
    logits = torch.nn.functional.linear(hidden, weight, bias).double() / temperature
    return logits.log_softmax(-1)[torch.arange(len(target)), target]


def grads(logp, upstream, leaves):
    used = [leaf for leaf in leaves if leaf is not None]
    return torch.autograd.grad((logp * upstream).sum(), used)


@pytest.mark.parametrize("chunk", [None, 1, 256, 500, V - 1, V, 10 * V])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("bias", [False, True])
def test_values_and_gradients_are_the_definition(chunk, temperature, bias):
    leaves, target, upstream = draw(bias=bias)
    if chunk == 1 and bias:
        target[:3] = torch.tensor([0, V - 1, 0])  # the ends, one of them twice
    logp, _ = fused_logprobs(
        leaves[0], leaves[1], target, temperature=temperature, bias_V=leaves[2], chunk_vocab=chunk
    )
    expected = oracle(leaves, target, temperature)
    torch.testing.assert_close(logp, expected, rtol=0, atol=1e-12)
    for ours, theirs in zip(
        grads(logp, upstream, leaves), grads(expected, upstream, leaves), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("chunk", [None, 400])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_t7_log_softmax_of_half_precision_logits_is_float32(chunk, dtype):
    leaves, target, upstream = draw(dtype)
    logp, _ = fused_logprobs(leaves[0], leaves[1], target, temperature=1.0, chunk_vocab=chunk)
    assert logp.dtype == torch.float32
    expected = oracle(leaves, target)
    torch.testing.assert_close(logp.double(), expected, rtol=0, atol=5e-6)
    logits = leaves[0] @ leaves[1].T
    half = logits.log_softmax(-1)[torch.arange(N), target]
    assert (half.double() - expected).abs().max() > 1e-3, "else this shows nothing"
    for ours, theirs in zip(
        grads(logp, upstream, leaves), grads(expected.float(), upstream, leaves), strict=True
    ):
        assert ours.dtype == dtype
        scale = theirs.abs().max().item()
        torch.testing.assert_close(
            ours.double(), theirs.double(), rtol=0, atol=4 * torch.finfo(dtype).eps * scale
        )


@pytest.mark.parametrize("chunk", [None, 400])
def test_t2_log_probs_are_those_of_the_sampling_temperature(chunk):
    leaves, _, _ = draw(n=1)
    hidden = leaves[0].detach()
    weight = leaves[1].detach()
    everything = torch.arange(V)
    logp, _ = fused_logprobs(
        hidden.expand(V, H), weight, everything, temperature=0.6, chunk_vocab=chunk
    )
    scores = torch.exp((weight @ hidden[0]) / 0.6)
    torch.testing.assert_close(logp, (scores / scores.sum()).log(), rtol=0, atol=1e-12)
    raw, _ = fused_logprobs(hidden.expand(V, H), weight, everything, temperature=1.0)
    assert (logp - raw).abs().max() > 0.5


@pytest.mark.parametrize("chunk", [None, 1, 400])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_entropy_is_exact_and_changes_nothing_else(chunk, temperature):
    leaves, target, upstream = draw()
    options = {"temperature": temperature, "chunk_vocab": chunk}
    logp, entropy = fused_logprobs(*leaves[:2], target, with_entropy=True, **options)
    p = ((leaves[0] @ leaves[1].T) / temperature).softmax(-1)
    torch.testing.assert_close(entropy, -(p * p.log()).sum(-1), rtol=0, atol=1e-12)
    without, _ = fused_logprobs(*leaves[:2], target, **options)
    assert torch.equal(logp, without)
    for a, b in zip(grads(logp, upstream, leaves), grads(without, upstream, leaves), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("chunk", [None, 1, 400, V])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("with_logp", [False, True])
def test_gradient_of_entropy_is_autograds(chunk, temperature, bias, with_logp):
    leaves, target, upstream = draw(bias=bias)
    logp, entropy = fused_logprobs(
        *leaves[:2], target, temperature=temperature, bias_V=leaves[2], chunk_vocab=chunk,
        with_entropy=True,
    )  # fmt: skip
    logits = torch.nn.functional.linear(*leaves) / temperature
    p = logits.softmax(-1)
    expected = -(p * p.log()).sum(-1) * upstream.flip(0)
    ours = entropy * upstream.flip(0)
    if with_logp:
        ours = ours + logp * upstream
        expected = expected + oracle(leaves, target, temperature) * upstream
    ones = torch.ones(N)
    for mine, theirs in zip(grads(ours, ones, leaves), grads(expected, ones, leaves), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 37, 64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_entropy_of_half_precision_in_the_memory_of_its_product(dtype, n):
    """V in chunks of 400 is four of them; rows are taken by halves, and an odd one by itself."""
    leaves, target, upstream = draw(dtype, n=n)
    with Calls() as calls:
        logp, entropy = fused_logprobs(
            *leaves[:2], target, temperature=0.7, chunk_vocab=400, with_entropy=True
        )
    # of each chunk the blocks', and one that moves what came before to a new maximum
    blocks = 1 if n == 1 else 2 + n % 2
    assert calls.counts["exp"] == 4 * (blocks + 1)
    logits = torch.nn.functional.linear(*leaves).double() / 0.7
    p = logits.softmax(-1)
    expected = -(p * p.log()).sum(-1)
    torch.testing.assert_close(entropy.double(), expected, rtol=0, atol=1e-5)
    ours = grads(logp + entropy, upstream, leaves)
    theirs = grads((oracle(leaves, target, 0.7) + expected).float(), upstream, leaves)
    for mine, exact in zip(ours, theirs, strict=True):
        atol = 4 * torch.finfo(dtype).eps * exact.abs().max().item()
        torch.testing.assert_close(mine.double(), exact.double(), rtol=0, atol=atol)


@pytest.mark.parametrize("chunk", [None, 400])
def test_gradient_of_entropy_is_finite_where_probabilities_are_0(chunk):
    hidden = torch.full((2, 1), 100.0, requires_grad=True)
    weight = torch.zeros(V, 1)
    weight[7], weight[1400] = 100.0, -100.0
    weight.requires_grad_()
    bias = torch.zeros(V)
    bias[30:50] = -torch.inf
    _, entropy = fused_logprobs(
        hidden, weight, torch.tensor([7, 0]), temperature=1.0, bias_V=bias, chunk_vocab=chunk,
        with_entropy=True,
    )  # fmt: skip
    for grad in torch.autograd.grad(entropy.sum(), [hidden, weight]):
        assert (grad == 0).all()


@pytest.mark.parametrize("chunk", [None, 400])
def test_extreme_logits_stay_finite(chunk):
    # float32, logits of +-1e4: one token has all the probability
    hidden = torch.full((3, 1), 100.0, requires_grad=True)
    weight = torch.zeros(V, 1)
    weight[7], weight[1400] = 100.0, -100.0
    weight.requires_grad_()
    logp, entropy = fused_logprobs(
        hidden, weight, torch.tensor([7, 0, 1400]), temperature=1.0, chunk_vocab=chunk,
        with_entropy=True,
    )  # fmt: skip
    assert logp.tolist() == [0.0, -1e4, -2e4]
    assert entropy.tolist() == [0.0, 0.0, 0.0]
    for grad in torch.autograd.grad(logp.sum(), [hidden, weight]):
        assert grad.isfinite().all()


def test_a_chunk_of_nothing_but_impossible_entries_adds_nothing():
    leaves, target, upstream = draw()
    target = 400 + target % 1000
    bias = torch.zeros(V, dtype=torch.float64)
    bias[:400] = -torch.inf
    logp, entropy = fused_logprobs(
        leaves[0], leaves[1], target, temperature=1.0, bias_V=bias, chunk_vocab=100,
        with_entropy=True,
    )  # fmt: skip
    short = [leaves[0], leaves[1][400:], None]
    torch.testing.assert_close(logp, oracle(short, target - 400), rtol=0, atol=1e-12)
    assert entropy.isfinite().all()
    assert all(grad.isfinite().all() for grad in grads(logp, upstream, leaves))


def test_backward_twice_gives_the_same():
    leaves, target, upstream = draw()
    logp, _ = fused_logprobs(leaves[0], leaves[1], target, temperature=0.7, chunk_vocab=400)
    loss = (logp * upstream).sum()
    first = torch.autograd.grad(loss, leaves[:2], retain_graph=True)
    second = torch.autograd.grad(loss, leaves[:2])
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


@pytest.mark.parametrize("chunk", [None, 400])
def test_only_what_needs_a_gradient_gets_one(chunk):
    leaves, target, upstream = draw()
    for needed in (0, 1):
        own = [leaf.detach().requires_grad_(i == needed) for i, leaf in enumerate(leaves[:2])]
        logp, _ = fused_logprobs(*own, target, temperature=1.0, chunk_vocab=chunk)
        (logp * upstream).sum().backward()
        expected = grads(oracle(leaves, target), upstream, leaves)[needed]
        torch.testing.assert_close(own[needed].grad, expected, rtol=0, atol=1e-12)
        assert own[1 - needed].grad is None
    with torch.no_grad():
        assert not fused_logprobs(*leaves[:2], target, temperature=1.0)[0].requires_grad


@pytest.mark.parametrize("chunk", [None, 400])
def test_no_tokens(chunk):
    leaves, _, _ = draw()
    none = torch.zeros(0, dtype=torch.long)
    logp, _ = fused_logprobs(leaves[0][:0], leaves[1], none, temperature=1.0, chunk_vocab=chunk)
    logp.sum().backward()
    assert logp.shape == (0,)
    assert (leaves[1].grad == 0).all()


@pytest.mark.parametrize("chunk", [None, 400])
def test_autocast_makes_the_product_in_its_dtype(chunk):
    leaves, target, upstream = draw(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logp, _ = fused_logprobs(leaves[0], leaves[1], target, temperature=1.0, chunk_vocab=chunk)
    halves = [leaf.detach().bfloat16() for leaf in leaves[:2]]
    expected = oracle([*halves, None], target)
    torch.testing.assert_close(logp.double(), expected, rtol=0, atol=5e-6)
    for grad in grads(logp, upstream, leaves):
        assert grad.dtype == torch.float32
        assert grad.isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"chunk_vocab": 0}, "chunk_vocab"),
        ({"target_N": torch.full((N,), -100)}, "-100"),
        ({"target_N": torch.full((N,), V)}, "vocabulary"),
        ({"target_N": torch.zeros(N - 1, dtype=torch.long)}, "shapes"),
        ({"bias_V": torch.zeros(V - 1)}, "bias"),
    ],
)
@pytest.mark.parametrize("chunk", [None, 400])
def test_wrong_arguments_are_refused(change, message, chunk):
    leaves, target, _ = draw()
    arguments = {
        "hidden_NH": leaves[0], "weight_VH": leaves[1], "target_N": target, "temperature": 1.0,
        "chunk_vocab": chunk,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        fused_logprobs(**(arguments | change))


def peak(way, hidden=64, dtype="float32"):
    shown = subprocess.run(
        [sys.executable, *MEMORY, way, str(hidden), dtype],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return int(shown.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
def test_peak_memory_is_a_quarter_of_float32_logits_and_their_gradient():
    both = 2 * (2 * 256 * 151_936) * 4
    assert peak("plain") > both, "the measure sees what it should"
    assert peak("fused") <= both / 4
    # with bfloat16 the product is held beside its float32 copy
    assert peak("fused", dtype="bfloat16") <= both / 4
    # value and gradient of the entropy take a part of a chunk more
    assert peak("entropy") <= both / 4
