"""Guard ``calibration``: top-k and top-p cut off where the config says."""

import math
from types import SimpleNamespace

import pytest
import torch

from rlvr_core.builtin.invariants.truncation import EXCESS, GAP, Truncation, apart, edges

STEPS, N, V = 10, 400, 40


def cut(top_k, top_p, margin=0.01):
    return {"top_k": top_k, "top_p": top_p, "margin": margin}


def check_of(top_k=0, top_p=1.0, temperature=1.0, accepted=None, dtype=torch.float32):
    parity = SimpleNamespace(max=accepted)
    return Truncation(top_k, top_p, temperature, parity=parity, compute=dtype)


def test_edges_worked_out_by_hand():
    """Probabilities 0.5, 0.25, 0.125, 0.125: top-2 keeps two thirds and one third."""
    logp_nV = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.0625]).log().expand(4, 5)
    found = torch.stack(edges(logp_nV, torch.tensor([0, 1, 2, 3]), **cut(2, 0.6)), 1)
    nats = math.log(2)
    # own nats below the second
    assert found[:, 0].tolist() == pytest.approx([-nats, 0, nats, 2 * nats])
    # the likelier ones among the two: 0, 2/3, 1, 1, less 0.6
    assert found[:, 1].tolist() == pytest.approx([-0.6, 2 / 3 - 0.6, 0.4, 0.4])
    # the third beside the two: 1/7, ln 2 below the second; the second 1/3, ln 2 below the first
    assert found[0, 2:].tolist() == pytest.approx([1 / 7, nats, 1 / 3, nats])
    without = torch.stack(edges(logp_nV, torch.tensor([0, 1, 2, 3]), **cut(0, 0.6)), 1)
    assert without[:, 1].tolist() == pytest.approx([-0.6, -0.1, 0.15, 0.275])
    assert (without[:, 0] < 0).all()


def kept(logits_nV, top_k, top_p):
    """Probabilities after both, written for a person: sort, cut, divide."""
    order_nV = logits_nV.argsort(descending=True)
    p_nV = logits_nV.gather(1, order_nV).softmax(1)
    p_nV[:, top_k or V :] = 0
    p_nV /= p_nV.sum(1, keepdim=True)
    p_nV[p_nV.cumsum(1) - p_nV >= top_p] = 0
    return torch.zeros_like(p_nV).scatter(1, order_nV, p_nV / p_nV.sum(1, keepdim=True))


def said(engine, trainer, noise=0.0, temperature=1.0, dtype=torch.float32, seed=0, **more):
    """What is said first in some steps of an engine that cuts at ``engine``, for ``trainer``."""
    check = check_of(*trainer, temperature, dtype=dtype, **more)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        logits_nV = 2 * torch.randn(N, V, generator=generator, dtype=torch.float64)
        seen_nV = logits_nV + noise * torch.randn(N, V, generator=generator, dtype=torch.float64)
        p_nV = kept(seen_nV / temperature, *engine)
        target_n = torch.multinomial(p_nV, 1, generator=generator)[:, 0]
        columns = edges(
            (logits_nV / temperature).log_softmax(-1),
            target_n,
            **cut(*trainer, apart(dtype, temperature)),
        )
        scores_NK = torch.stack([*[torch.zeros(N)] * GAP, *columns, torch.zeros(N)], 1)
        if what := check.wrong(scores_NK):
            return what
    return ""


@pytest.mark.parametrize("at", [(4, 1.0), (20, 1.0), (1, 1.0), (0, 0.9), (0, 0.5), (10, 0.8)])
@pytest.mark.parametrize(
    ("noise", "dtype"),
    [(0.0, torch.float32), (1e-4, torch.float32), (0.03, torch.bfloat16), (0.06, torch.bfloat16)],
)
def test_a_healthy_engine_that_rounds_is_quiet(at, noise, dtype):
    for seed in range(3):
        assert said(at, at, noise, dtype=dtype, seed=seed) == ""
    assert said(at, at, noise, temperature=0.5, dtype=dtype) == ""


@pytest.mark.parametrize(
    ("engine", "trainer", "words"),
    [
        ((5, 1.0), (4, 1.0), "left out by top_k 4"),
        ((3, 1.0), (4, 1.0), "the last of the 4 likeliest"),
        ((2, 1.0), (1, 1.0), "left out by top_k 1"),
        ((0, 1.0), (8, 1.0), "left out by top_k 8"),
        ((0, 0.97), (0, 0.9), "top_p 0.9"),
        ((0, 1.0), (0, 0.9), "top_p 0.9"),
        ((10, 1.0), (10, 0.8), "top_p 0.8"),
    ],
)
@pytest.mark.parametrize(("noise", "dtype"), [(0, torch.float32), (0.03, torch.bfloat16)])
def test_an_engine_that_cuts_elsewhere(engine, trainer, words, noise, dtype):
    assert words in said(engine, trainer, noise, dtype=dtype)


def test_who_accepts_a_difference_of_log_probs_accepts_it_here():
    assert said((5, 1.0), (4, 1.0), accepted=8.0) == ""


def test_a_token_outside_top_k_is_not_counted_again_for_top_p():
    check = check_of(2, 0.6)
    scores = torch.zeros(500, 14)
    scores[:, GAP], scores[:, EXCESS] = 0.005, 0.4
    assert check.wrong(scores) == ""
