"""The LM head of compiled models against the definition in float64."""

import pytest
import torch

from rlvr_core.compiling import head
from rlvr_core.compiling.head import compiled_logprobs

N, H, V = 37, 16, 1501


@pytest.fixture(params=["eager", pytest.param("compiled", marks=pytest.mark.slow)])
def way(request):
    """Its formulas as they are, and as torch compiles them."""
    stance = "force_eager" if request.param == "eager" else "default"
    with torch.compiler.set_stance(stance):
        yield request.param


def draw(dtype, bias=False, n=N):
    torch.manual_seed(3)
    hidden = torch.randn(n, H, dtype=torch.float64) / 2
    weight = torch.randn(V, H, dtype=torch.float64)
    extra = torch.randn(V, dtype=torch.float64) if bias else None
    leaves = [None if x is None else x.to(dtype).requires_grad_() for x in (hidden, weight, extra)]
    target = torch.randint(V, (n,))
    target[:3] = torch.tensor([0, V - 1, 0])[:n]  # the ends, one of them twice
    return leaves, target, torch.randn(2, n)


def oracle(leaves, target, temperature):
    """Log-probs and entropies in float64 of the logits that the dtype gives."""
    logits = torch.nn.functional.linear(*leaves).double() / temperature
    logp = logits.log_softmax(-1)
    return logp[torch.arange(len(target)), target], torch.special.entr(logp.exp()).sum(-1)


def grads(of, upstream, leaves):
    used = [leaf for leaf in leaves if leaf is not None]
    total = sum((one * by).sum() for one, by in zip(of, upstream, strict=True))
    return torch.autograd.grad(total, used, retain_graph=True)


@pytest.mark.parametrize("columns", [64, 800, 2 * V])  # 32 chunks, 2 and one
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float64, 1e-11), (torch.float32, 2e-5), (torch.bfloat16, 3e-2)]
)
def test_values_and_gradients_are_the_definition(
    monkeypatch, way, columns, temperature, bias, dtype, atol
):
    monkeypatch.setattr(head, "_CHUNK_BYTES", columns * N * dtype.itemsize)
    leaves, target, upstream = draw(dtype, bias)
    options = {"temperature": temperature, "bias_V": leaves[2], "with_entropy": True}
    ours = compiled_logprobs(leaves[0], leaves[1], target, **options)
    exact = oracle(leaves, target, temperature)
    tight = 1e-11 if dtype == torch.float64 else 2e-5
    for mine, theirs in zip(ours, exact, strict=True):
        assert mine.dtype == torch.promote_types(dtype, torch.float32)
        torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=tight)
    expected = grads(exact, upstream.double(), leaves)
    for _ in range(2):  # the second pass finds no logits that the first has left
        for mine, theirs in zip(grads(ours, upstream, leaves), expected, strict=True):
            scale = float(theirs.abs().max())
            assert mine.dtype == dtype
            torch.testing.assert_close(mine, theirs, rtol=0, atol=atol * max(scale, 1.0))


@pytest.mark.parametrize("which", [0, 1])
def test_the_gradient_of_one_of_the_two_alone(way, which):
    leaves, target, upstream = draw(torch.float64)
    ours = compiled_logprobs(leaves[0], leaves[1], target, temperature=0.8, with_entropy=True)
    exact = oracle(leaves, target, 0.8)
    pairs = zip(
        grads([ours[which]], upstream[:1], leaves),
        grads([exact[which]], upstream[:1].double(), leaves),
        strict=True,
    )
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize("masked", [slice(0, 64), slice(64, 700)])
def test_tokens_that_cannot_be_are_no_nan(monkeypatch, way, masked):
    monkeypatch.setattr(head, "_CHUNK_BYTES", 64 * N * 8)
    leaves, target, upstream = draw(torch.float64, bias=True)
    with torch.no_grad():
        leaves[2][masked] = -torch.inf  # one chunk or more of nothing else
    target.fill_(1000)
    ours = compiled_logprobs(
        leaves[0], leaves[1], target, temperature=1.0, bias_V=leaves[2], with_entropy=True
    )
    exact = oracle(leaves, target, 1.0)
    for mine, theirs in zip(ours, exact, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-11)
    assert all(one.isfinite().all() for one in grads(ours, upstream, leaves))


def test_no_tokens_at_all(way):
    leaves, target, _ = draw(torch.float32)
    logp, entropy = compiled_logprobs(
        leaves[0][:0], leaves[1], target[:0], temperature=1.0, with_entropy=True
    )
    assert logp.shape == entropy.shape == (0,)
    (logp.sum() + entropy.sum()).backward()
    assert leaves[1].grad.abs().max() == 0


def test_autocast_chooses_the_precision_of_the_product(way):
    leaves, target, _ = draw(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        logp, entropy = compiled_logprobs(leaves[0], leaves[1], target, temperature=1.0)
    half = [leaf if leaf is None else leaf.bfloat16() for leaf in leaves]
    assert entropy is None
    assert logp.dtype == torch.float32
    torch.testing.assert_close(logp.double(), oracle(half, target, 1.0)[0], rtol=0, atol=2e-5)
    logp.sum().backward()
    assert leaves[1].grad.dtype == torch.float32


@pytest.mark.parametrize(
    ("most", "size"),
    [(1501 * 6, 1504), (1501 * 6 - 1, 752), (1501 * 3 - 1, 376), (1, 8)],
)
def test_chunks_are_parts_of_the_vocabulary_by_powers_of_two(most, size):
    """A vocabulary of 1,501 whole, in halves, in quarters: 1,501, 750.5, 375.25; then by eights."""
    assert head.chunk_size(1501, 6, most) == size
