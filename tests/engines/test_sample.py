"""Sampling: exact distributions, sound streams, no impossible token."""

import numpy as np
import pytest
import torch

from rlvr_core.api import RunError, SamplingParams
from rlvr_core.engines.decode import RowSampling, sample, uniforms
from rlvr_core.engines.sampling import completion_seed


def draw(logits, params, n, seed=0):
    rows = RowSampling.of([params] * n, len(logits), torch.device("cpu"))
    u = uniforms(range(seed, seed + n), 0, 1)[0]
    return sample(torch.tensor(logits).repeat(n, 1), rows, u)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(), [0.5, 0.3, 0.15, 0.05]),
        (SamplingParams(temperature=0.5), [0.25, 0.09, 0.0225, 0.0025]),
        (SamplingParams(top_k=2), [0.5, 0.3, 0, 0]),
        (SamplingParams(top_p=0.8), [0.5, 0.3, 0, 0]),
        (SamplingParams(top_p=0.81), [0.5, 0.3, 0.15, 0]),
        (SamplingParams(top_k=3, top_p=0.53), [0.5, 0.3, 0, 0]),
        (SamplingParams(top_p=0.01), [1, 0, 0, 0]),
    ],
)
def test_frequencies_fit_the_exact_distribution(params, expected):
    n = 40_000
    p = np.array(expected) / np.sum(expected)
    # just below the edge: 0.5 + 0.3 in floats may fall on either side of 0.8
    params = SamplingParams(params.temperature, params.top_p - 1e-6, params.top_k)
    tokens, logps = draw(np.log([0.5, 0.3, 0.15, 0.05]).tolist(), params, n)
    counts = np.bincount(tokens.numpy(), minlength=4)
    assert counts[p == 0].sum() == 0
    live = p > 0
    chi_square = ((counts[live] - n * p[live]) ** 2 / (n * p[live])).sum()
    assert chi_square < 20  # three degrees of freedom: p < 2e-4
    torch.testing.assert_close(
        logps, torch.tensor(p, dtype=torch.float32).log()[tokens], rtol=0, atol=1e-5
    )


def test_impossible_tokens_never_come_out():
    inf = float("inf")
    logits = torch.tensor([[-inf, 0.0, -inf, 0.0, -inf], [-300.0, -inf, 0.0, -300.0, -300.0]])
    rows = RowSampling.of([SamplingParams()] * 2, 5, torch.device("cpu"))
    last = 1 - 2.0**-52
    for u, expected in ((0.0, [1, 2]), (0.4999, [1, 2]), (0.5, [3, 2]), (last, [3, 2])):
        tokens, logps = sample(logits.clone(), rows, torch.full((2,), u, dtype=torch.float64))
        assert tokens.tolist() == expected
        assert torch.isfinite(logps).all()


@pytest.mark.parametrize("vocabulary", [3, 1000, 150_000])
def test_the_top_of_the_range_stays_inside(vocabulary):
    logits = torch.randn(64, vocabulary, generator=torch.Generator().manual_seed(0))
    rows = RowSampling.of([SamplingParams()] * 64, vocabulary, torch.device("cpu"))
    u = torch.full((64,), 1 - 2.0**-52, dtype=torch.float64)
    tokens, _ = sample(logits.clone(), rows, u)
    assert tokens.max() < vocabulary


def test_rare_tokens_are_neither_lost_nor_favoured():
    """Probability 1e-9 beside 1: float32 sums could not tell the two apart."""
    logits = torch.tensor([[0.0, float(np.log(1e-9)), float(np.log(1e-9))]])
    rows = RowSampling.of([SamplingParams()], 3, torch.device("cpu"))
    for u, token in ((1 - 2.5e-9, 0), (1 - 1.5e-9, 1), (1 - 0.5e-9, 2)):
        assert (
            sample(logits.clone(), rows, torch.tensor([u], dtype=torch.float64))[0].item() == token
        )


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_diverged_model_is_named(bad, temperature):
    with pytest.raises(RunError, match="diverged"):
        draw([0.0, bad, 1.0], SamplingParams(temperature=temperature), 2)


def test_ties_under_top_k_keep_exactly_k():
    tokens, _ = draw([0.0] * 6, SamplingParams(top_k=2), 500)
    assert len(set(tokens.tolist())) == 2


def test_uniforms_are_uniform_independent_and_of_their_seed():
    u_TB = uniforms(range(2000), 0, 50)
    assert ((u_TB >= 0) & (u_TB <= 1 - 2.0**-52)).all()
    counts = torch.histc(u_TB.float(), bins=20, min=0, max=1)
    assert ((counts - 5000) ** 2 / 5000).sum() < 50  # 19 degrees of freedom: p < 2e-4
    corr = torch.corrcoef(u_TB)
    assert corr.fill_diagonal_(0).abs().max() < 0.12  # over seeds, between positions
    assert torch.corrcoef(uniforms(range(30), 0, 4000).T).fill_diagonal_(0).abs().max() < 0.09
    assert torch.equal(uniforms([5, 9], 3, 4), uniforms([9, 5], 0, 9)[3:7].flip(1))
    increment = 0x9E3779B97F4A7C15
    shifted = uniforms([7, 7 + increment], 0, 50)
    assert not torch.equal(shifted[1:, 0], shifted[:-1, 1])


def test_t18_seeds_differ():
    seeds = {
        completion_seed(run, problem, version, draw_index, i)
        for run in (0, 1)
        for problem in ("a", "b", "a\x00b")
        for version in (0, 1)
        for draw_index in (0, 1, 12)
        for i in range(20)
    }
    assert len(seeds) == 2 * 3 * 2 * 3 * 20
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_seeds_are_the_same_everywhere():
    assert completion_seed(0, "gsm8k_train_17", 3, 5, 7) == completion_seed(
        0, "gsm8k_train_17", 3, 5, 7
    )
    assert completion_seed(1, "é", 2, 3, 4) == PINNED


PINNED = 4075224819368065952
