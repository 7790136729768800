"""Numbers by hand; the tests of the core check what holds for every registered loss."""

import math
from dataclasses import replace

import pytest
import torch

from rlvr_algos.losses import CISPO, GMPO, LUSPO, REINFORCE, SAPO, VESPO
from rlvr_core.algorithm.reduce import finish
from rlvr_core.api import LossBatch, Normalizer

LOSSES = [CISPO, GMPO, LUSPO, REINFORCE, SAPO, VESPO]
ONE = Normalizer(rows=1, tokens=1, max_completion_tokens=1)
TWO = Normalizer(rows=1, tokens=2, max_completion_tokens=3)
STEP = Normalizer(rows=4, tokens=14, max_completion_tokens=6)


def make(cls, **options):
    return cls(cls.Config(**options))


def value_and_grad(loss, batch, normalizer=ONE):
    output = loss(batch, normalizer)
    (grad,) = torch.autograd.grad(output.loss, batch.logp_BT)
    return output.loss.item(), grad


def of(logps, advantage, mask):
    """One row whose old log-probs are -1."""
    logp = torch.tensor([logps], dtype=torch.float64)
    old = torch.full_like(logp, -1.0)
    A = torch.tensor([advantage], dtype=torch.float64)
    return LossBatch(logp.requires_grad_(), old, old, None, torch.tensor([mask]), A)


def token(ratio, advantage):
    return of([math.log(ratio) - 1], advantage, [True])


def two_tokens(ratios, advantage):
    """One row whose second position is masked, between two that are not."""
    logps = [math.log(ratios[0]) - 1, 7.0, math.log(ratios[1]) - 1]
    return of(logps, advantage, [True, False, True])


@pytest.fixture
def batch():
    torch.manual_seed(0)
    shape = (4, 6)
    lp = -2 * torch.rand(shape, dtype=torch.float64) - 0.1
    old = lp + 0.4 * torch.randn(shape, dtype=torch.float64)
    mask = torch.arange(6) < torch.tensor((6, 3, 4, 1))[:, None]
    advantage = torch.tensor([1, -0.5, 0.25, -1.5], dtype=torch.float64)
    return LossBatch(lp.requires_grad_(), old, old, None, mask, advantage)


@pytest.mark.parametrize(
    ("cls", "options", "expected"),
    [
        (CISPO, {"cap": 5.0}, 0.4455309247),
        (SAPO, {}, 0.3734554731),
        (LUSPO, {"clip_low": 0.2, "clip_high": 0.2}, -0.5505562952),
    ],
)
def test_pinned_fixture(cls, options, expected, batch):
    assert make(cls, **options)(batch, STEP).loss.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("cls", LOSSES)
def test_pinned_fixture_on_policy_has_the_policy_gradient(cls, batch):
    on_policy = replace(batch, old_logp_BT=batch.logp_BT.detach())
    _, grad = value_and_grad(make(cls, importance_correction={"mode": "off"}), on_policy, STEP)
    per_row = batch.mask_BT.sum(1, keepdim=True) * 4.0
    per_token = {LUSPO: 4.0, SAPO: per_row, GMPO: per_row}.get(cls, 14.0)
    expected = torch.where(batch.mask_BT, -batch.advantage_B[:, None] / per_token, 0.0)
    torch.testing.assert_close(grad, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("cls", "ratio", "advantage", "loss", "grad"),
    [
        # -min(r, cap) A logp with logp = ln r - 1; the weight has no gradient
        (CISPO, 2.0, 1.0, -2 * (math.log(2) - 1), -2.0),
        (CISPO, 9.0, -1.0, 5 * (math.log(9) - 1), 5.0),
        (REINFORCE, 2.0, 1.0, -(math.log(2) - 1), -1.0),
        (REINFORCE, 0.5, -1.0, 0.5 * (math.log(0.5) - 1), 0.5),
        # the gate at r = 2 and tau 1 is 4 sigmoid(1), its slope 4 s (1 - s) times r
        (SAPO, 2.0, 1.0, -4 * 0.7310585786300049, -2 * 4 * 0.7310585786300049 * 0.2689414213699951),
        # one token's geometric mean is its own ratio, clipped at exp(0.4) one side only
        (GMPO, 2.0, 1.0, -math.exp(0.4), 0.0),
        (GMPO, 2.0, -1.0, 2.0, 2.0),
        (GMPO, 0.5, 1.0, -0.5, -0.5),
        (GMPO, 0.5, -1.0, math.exp(-0.4), 0.0),
        (LUSPO, 1.1, 1.0, -1.1, -1.1),
        # phi(2) = 2^2 exp(3 (1 - 2)) where A > 0, 2^3 exp(2 (1 - 2)) elsewhere
        (VESPO, 2.0, 1.0, -4 * math.exp(-3) * (math.log(2) - 1), -4 * math.exp(-3)),
        (VESPO, 2.0, -1.0, 8 * math.exp(-2) * (math.log(2) - 1), 8 * math.exp(-2)),
    ],
)
def test_one_token_by_hand(cls, ratio, advantage, loss, grad):
    value, gradient = value_and_grad(make(cls), token(ratio, advantage))
    assert value == pytest.approx(loss)
    assert gradient.item() == pytest.approx(grad)


def test_gmpo_clips_each_token_before_the_mean():
    # log-ratios ln 4, clipped to 0.4, and 0: exp(0.2); only the second token still moves
    value, grad = value_and_grad(make(GMPO), two_tokens((4.0, 1.0), 1.0), TWO)
    assert value == pytest.approx(-math.exp(0.2))
    expected = torch.tensor([[0.0, 0.0, -math.exp(0.2) / 2]], dtype=torch.float64)
    torch.testing.assert_close(grad, expected)


def test_gmpo_takes_its_mean_over_the_chosen_tokens():
    batch = two_tokens((1.2, 1.0), 1.0)
    first = replace(batch, entropy_mask_BT=torch.tensor([[True, False, False]]))
    value, grad = value_and_grad(make(GMPO, top_entropy=0.5), first, TWO)
    assert value == pytest.approx(-1.2)
    assert grad.tolist() == [[pytest.approx(-1.2), 0, 0]]


def test_luspo_counts_every_token_of_a_row_in_full():
    for ratio, total in (("token", 4.0 + 1.0), ("sequence", 2.0 + 2.0)):
        loss = make(LUSPO, ratio=ratio, clip_high=9.0)
        value, _ = value_and_grad(loss, two_tokens((4.0, 1.0), 1.0), TWO)
        assert value == pytest.approx(-total)


def metrics(loss, batch):
    output = loss(batch, ONE)
    sums = {name: (total.item(), count.item()) for name, (total, count) in output.sums.items()}
    return finish(sums, {name: most.item() for name, most in output.maxima.items()})


def test_gate_and_cap_metrics_by_hand():
    high = token(3.0, 1.0)
    assert metrics(make(CISPO, cap=2.0), high)["clip_fraction/high"] == 1
    assert metrics(make(CISPO), high)["clip_fraction/high"] == 0
    gate = 1 / (1 + math.exp(-2))
    assert metrics(make(SAPO), high)["gate/mean"] == pytest.approx(4 * gate * (1 - gate))
    assert metrics(make(SAPO), token(1.0, 1.0))["gate/mean"] == 1
    for advantage, side in ((1.0, "high"), (-1.0, "low")):
        batch = token(math.exp(0.5 * advantage), advantage)
        assert metrics(make(GMPO), batch)[f"clip_fraction/{side}"] == 1


@pytest.mark.parametrize("cls", LOSSES)
def test_only_losses_of_a_rows_ratio_take_one_advantage_a_row(cls):
    assert make(cls).traits.per_token_advantages is (cls not in (GMPO, VESPO))
    if "ratio" in cls.Config.model_fields:
        assert not make(cls, ratio="sequence").traits.per_token_advantages
