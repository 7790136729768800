"""The policy losses: numbers by hand, and what holds for every loss that is registered.

Where rlvr-algos is installed, the latter are checked for its losses too.
"""

import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from rlvr_core.algorithm.policy import PolicyLoss
from rlvr_core.algorithm.reduce import finish
from rlvr_core.api import Loss, LossBatch, Normalizer, config_class
from rlvr_core.losses import DAPO, GRPO, GSPO, SFT, DrGRPO
from rlvr_core.plugins.host import load_host
from rlvr_core.record.metrics import check_declared

LOSSES = [
    cls for entry in load_host().registry.of("loss") if issubclass(cls := entry.load(), PolicyLoss)
]
FULL = {
    "beta": 0.1,
    "kl_ratio_corrected": True,
    "delta": 1.5,
    "importance_correction": {"mode": "sequence_truncate", "cap": 1.3},
    "entropy_bonus": 0.3,
    "top_entropy": 0.5,
    "off_policy_mask": 0.05,
}


def make(cls, **options):
    """A loss with those of the options that it has."""
    known = {name: value for name, value in options.items() if name in cls.Config.model_fields}
    assert known.keys() >= options.keys() - FULL.keys()
    try:
        config = cls.Config(**known)
    except ValidationError:  # of a loss whose weights are those of tokens
        by_token = {"mode": "token_truncate", "cap": 1.3}
        config = cls.Config(**known | {"importance_correction": by_token})
    return cls(config)


def token(logp, old, advantage, *, ref=None, behaviour=None, dtype=torch.float64):
    """One row of one token, whose log-prob has a gradient."""

    def t(value):
        return torch.tensor([[value]], dtype=dtype)

    return LossBatch(
        t(logp).requires_grad_(),
        t(old),
        t(old if behaviour is None else behaviour),
        None if ref is None else t(ref),
        torch.ones(1, 1, dtype=torch.bool),
        torch.tensor([advantage], dtype=dtype),
        t(1.0),
        torch.ones(1, 1, dtype=torch.bool),
    )


ONE = Normalizer(rows=1, tokens=1, max_completion_tokens=1)


def value_and_grad(loss, batch, normalizer=ONE):
    output = loss(batch, normalizer)
    (grad,) = torch.autograd.grad(output.loss, batch.logp_BT)
    return output.loss.item(), grad


# -- pinned and hand-computed values -------------------------------------------------------------


RANGE = {"clip_low": 0.2, "clip_high": 0.2}


@pytest.mark.parametrize(
    ("cls", "options", "expected"),
    [
        (GRPO, RANGE, 0.3204579588),
        (DAPO, RANGE, -0.1573017986),
        (DrGRPO, RANGE, -0.0917593825),
    ],
)
def test_pinned_fixture(cls, options, expected, batch, normalizer):
    output = make(cls, **options)(batch, normalizer)
    assert output.loss.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("cls", [GRPO, DAPO, DrGRPO, GSPO])
def test_pinned_fixture_on_policy_has_the_policy_gradient(cls, batch, normalizer):
    on_policy = replace(batch, old_logp_BT=batch.logp_BT.detach())
    _, grad = value_and_grad(
        make(cls, importance_correction={"mode": "off"}), on_policy, normalizer
    )
    per_row = batch.mask_BT.sum(1, keepdim=True) * 4.0
    per_token = {DAPO: 14.0, DrGRPO: 24.0}.get(cls, per_row)
    expected = torch.where(batch.mask_BT, -batch.advantage_B[:, None] / per_token, 0.0)
    torch.testing.assert_close(grad, expected, rtol=0, atol=1e-15)


def test_reductions_by_hand():
    # on-policy, so a token's loss is -A: two rows of 1 and 3 tokens, A = 1 and -2
    logp = torch.full((2, 3), -1.0, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, False, False], [True, True, True]])
    old = logp.detach()
    advantage = torch.tensor([1.0, -2.0], dtype=torch.float64)
    batch = LossBatch(logp, old, old, None, mask, advantage)
    step = Normalizer(rows=2, tokens=4, max_completion_tokens=10)
    assert make(GRPO)(batch, step).loss.item() == (-1 + 2) / 2
    assert make(DAPO)(batch, step).loss.item() == (-1 + 3 * 2) / 4
    assert make(DrGRPO)(batch, step).loss.item() == pytest.approx((-1 + 3 * 2) / (2 * 10))
    assert make(DrGRPO, constant=5)(batch, step).loss.item() == (-1 + 3 * 2) / (2 * 5)


@pytest.mark.parametrize(
    ("cls", "ratio", "advantage", "loss", "grad"),
    [
        (GRPO, 1.1, 1.0, -1.1, -1.1),  # inside
        (GRPO, 1.5, 1.0, -1.2, 0.0),  # above, good: cut
        (GRPO, 0.5, 1.0, -0.5, -0.5),  # below, good: counts
        (GRPO, 1.5, -1.0, 1.5, 1.5),  # above, bad: counts
        (GRPO, 0.5, -1.0, 0.8, 0.0),  # below, bad: cut
        (GRPO, 4.0, -1.0, 4.0, 4.0),
        (DAPO, 1.5, 1.0, -1.28, 0.0),  # its range is wider above
        (GSPO, 1.01, 1.0, -1.0004, 0.0),  # far narrower
        (GSPO, 1.01, -1.0, 1.01, 1.01),
        (GSPO, 0.99, -1.0, 0.9997, 0.0),
    ],
)
def test_clip_by_hand(cls, ratio, advantage, loss, grad):
    value, gradient = value_and_grad(make(cls), token(math.log(ratio) - 1, -1.0, advantage))
    assert value == pytest.approx(loss)
    assert gradient.item() == pytest.approx(grad)


def two_tokens(ratios, advantage):
    """One row whose second position is masked, between two that are not."""
    logp = torch.tensor([[ratios[0], 7.0, ratios[1]]], dtype=torch.float64).log() - 1
    old = torch.full((1, 3), -1.0, dtype=torch.float64)
    mask = torch.tensor([[True, False, True]])
    A = torch.tensor([advantage], dtype=torch.float64)
    return LossBatch(logp.requires_grad_(), old, old, None, mask, A)


TWO = Normalizer(rows=1, tokens=2, max_completion_tokens=3)


def test_sequence_ratio_is_the_geometric_mean_and_moves_all_tokens():
    # ratios 4 and 1: the sequence's is 2, and each token's log-prob moves it by half
    value, grad = value_and_grad(make(GSPO, clip_high=2.0), two_tokens((4.0, 1.0), 1.0), TWO)
    assert value == pytest.approx(-2)
    torch.testing.assert_close(grad, torch.tensor([[-1.0, 0.0, -1.0]], dtype=torch.float64))
    value, grad = value_and_grad(make(GSPO, clip_high=0.5), two_tokens((4.0, 1.0), 1.0), TWO)
    assert value == pytest.approx(-1.5)
    assert (grad == 0).all(), "clipped as one"


def test_top_entropy_drops_the_surrogate_but_neither_kl_nor_denominator():
    batch = replace(
        two_tokens((1.1, 1.0), 1.0),
        ref_logp_BT=torch.full((1, 3), -2.0, dtype=torch.float64),
        entropy_mask_BT=torch.tensor([[False, True, True]]),
    )
    logp = batch.logp_BT.detach()
    kl = [math.exp(-2 - x) - (-2 - x) - 1 for x in logp[0].tolist()]
    value, _ = value_and_grad(make(DAPO, top_entropy=0.5, beta=0.1), batch, TWO)
    assert value == pytest.approx((-1.0 + 0.1 * (kl[0] + kl[2])) / 2)


def test_off_policy_mask_by_hand():
    """Rows with mean drifts 0.3, 0.1 and 0.3; only the bad one that is far is dropped."""
    logp_BT = torch.tensor([[-1.0, -2.0]] * 3, dtype=torch.float64, requires_grad=True)
    behaviour_BT = torch.tensor([[-0.6, -1.8], [-0.8, -2.0], [-0.6, -1.8]], dtype=torch.float64)
    batch = LossBatch(
        logp_BT,
        logp_BT.detach(),
        behaviour_BT,
        logp_BT.detach() - 0.5,
        torch.ones(3, 2, dtype=torch.bool),
        torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64),
    )
    options = {"importance_correction": {"mode": "off"}, "off_policy_mask": 0.2}
    loss = DAPO(DAPO.Config(**options))
    output = loss(batch, Normalizer(rows=3, tokens=6, max_completion_tokens=9))
    # what is dropped stays in the denominator: -(0 - 2 + 2) / 6, and a gradient of -A / 6
    assert output.loss.item() == pytest.approx(0.0, abs=1e-12)
    (grad_BT,) = torch.autograd.grad(output.loss, logp_BT)
    expected_BT = torch.tensor([[0, 0], [1 / 6] * 2, [-1 / 6] * 2], dtype=torch.float64)
    torch.testing.assert_close(grad_BT, expected_BT, rtol=0, atol=1e-12)
    totals = {name: (a.item(), n.item()) for name, (a, n) in output.sums.items()}
    found = finish(totals, {name: most.item() for name, most in output.maxima.items()})
    assert found["off_policy/dropped"] == pytest.approx(1 / 3)
    assert found["off_policy/drift_max"] == pytest.approx(0.3)
    # the KL of a dropped row stays
    held = DAPO(DAPO.Config(beta=0.1, **options))(
        batch, Normalizer(rows=3, tokens=6, max_completion_tokens=9)
    )
    assert held.loss.item() == pytest.approx(0.1 * (math.exp(-0.5) + 0.5 - 1))


@pytest.mark.parametrize("cls", LOSSES)
def test_entropy_bonus_is_the_mean_over_loss_tokens_for_every_loss(cls, make_batch, count):
    batch = make_batch(5, 7)
    step = count(batch, world_size=2)
    plain = make(cls)(batch, step).loss
    bonus = make(cls, entropy_bonus=0.3)(batch, step).loss
    (grad,) = torch.autograd.grad(bonus, batch.entropy_BT)
    mean = batch.entropy_BT[batch.mask_BT].mean()
    assert (bonus - plain).item() == pytest.approx(-0.3 * 2 * mean.item())
    expected = torch.where(batch.mask_BT, -0.3 * 2 / batch.mask_BT.sum(), 0.0)
    torch.testing.assert_close(grad, expected.double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("ratio", [0.3, 1.0, 1.1, 1.5, 3.0, 50.0])
def test_delta_acts_only_where_the_advantage_is_negative(ratio):
    for advantage in (1.0, -1.0):
        batch = token(math.log(ratio) - 1, -1.0, advantage)
        plain, plain_grad = value_and_grad(make(GRPO), batch)
        capped, capped_grad = value_and_grad(make(GRPO, delta=2.0), batch)
        if advantage < 0 and ratio > 2:
            assert (capped, capped_grad.item()) == (2.0, 0.0)
        else:
            assert (capped, capped_grad) == (plain, plain_grad)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 1 - math.exp(-1)),  # of k3 with d = -1
        ({"kl_ratio_corrected": True}, 1.0),
        ({"kl_estimator": "k1"}, 1.0),
        ({"kl_estimator": "k2"}, 1.0),
        ({"kl_estimator": "k1", "kl_ratio_corrected": True}, 2.0),
        ({"kl_estimator": "k2", "kl_ratio_corrected": True}, 1.5),
    ],
)
def test_kl_gradient_off_policy(options, expected):
    loss = make(GRPO, beta=1.0, **options)
    _, grad = value_and_grad(loss, token(-1.0, -1.0, 0.0, ref=-2.0))
    assert grad.item() == pytest.approx(expected, abs=1e-12)


def test_kl_is_neither_clipped_nor_weighed():
    # ratio e and A > 0: the surrogate is cut at 1.2 and weighed 2, the KL stays
    batch = token(-1.0, -2.0, 1.0, ref=-3.0, behaviour=-4.0)
    value, grad = value_and_grad(make(GRPO, beta=0.5), batch)
    assert value == pytest.approx(2 * -1.2 + 0.5 * (math.exp(-2) + 2 - 1))
    assert grad.item() == pytest.approx(0.5 * (1 - math.exp(-2)))


def test_importance_weight_multiplies_the_surrogate():
    batch = token(-1.0, -1.0, 1.0, behaviour=-1.5)
    value, grad = value_and_grad(make(GRPO), batch)
    assert value == pytest.approx(-math.exp(0.5))
    assert grad.item() == pytest.approx(-math.exp(0.5)), "the weight carries no gradient"


# -- signs, zeros, extremes ----------------------------------------------------------------------


@pytest.mark.parametrize("cls", LOSSES)
def test_gradient_raises_good_and_lowers_bad(cls):
    for advantage in (2.0, -2.0):
        _, grad = value_and_grad(make(cls), token(-1.0, -1.0, advantage))
        assert -math.copysign(1, grad.item()) == math.copysign(1, advantage)


@pytest.mark.parametrize("cls", LOSSES)
def test_zero_advantage_has_zero_gradient(cls, batch, normalizer):
    flat = replace(batch, advantage_B=torch.zeros(4, dtype=torch.float64))
    value, grad = value_and_grad(make(cls), flat, normalizer)
    assert value == 0
    assert (grad == 0).all()


@pytest.mark.parametrize("cls", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("logp", [-0.001, -60.0, -5000.0])
@pytest.mark.parametrize("old", [-0.001, -60.0, -5000.0])
def test_extreme_ratios_stay_finite(cls, dtype, logp, old):
    for advantage in (1.0, -1.0, 0.0):
        batch = token(logp, old, advantage, ref=old, behaviour=logp, dtype=dtype)
        for options in ({}, {"beta": 0.1}, FULL):
            loss = make(cls, **options)
            output = loss(batch, ONE)
            (grad,) = torch.autograd.grad(output.loss, batch.logp_BT)
            assert output.loss.isfinite()
            assert grad.isfinite().all()
            assert all(total.isfinite() for total, _ in output.sums.values())
            assert all(most.isfinite() for most in output.maxima.values())


@pytest.mark.parametrize("cls", LOSSES)
def test_masked_positions_never_leak(cls, batch, normalizer):
    def spoilt(x):
        return torch.where(batch.mask_BT, x.detach(), torch.nan)

    loss = make(cls, **FULL)
    batch = replace(batch, entropy_BT=batch.ref_logp_BT.square(), entropy_mask_BT=batch.mask_BT)
    clean, clean_grad = value_and_grad(loss, batch, normalizer)
    dirty = replace(
        batch,
        entropy_BT=spoilt(batch.entropy_BT),
        entropy_mask_BT=batch.entropy_mask_BT | ~batch.mask_BT,
        logp_BT=spoilt(batch.logp_BT).requires_grad_(),
        old_logp_BT=spoilt(batch.old_logp_BT),
        behaviour_logp_BT=spoilt(batch.behaviour_logp_BT),
        ref_logp_BT=spoilt(batch.ref_logp_BT),
    )
    value, grad = value_and_grad(loss, dirty, normalizer)
    assert value == clean
    torch.testing.assert_close(grad, clean_grad, rtol=0, atol=0)
    assert (grad[~batch.mask_BT] == 0).all()


@pytest.mark.parametrize("cls", LOSSES)
@pytest.mark.parametrize("rows", [3, 0])
def test_micro_batch_without_loss_tokens_is_zero_with_a_graph(cls, rows, normalizer):
    logp = torch.randn(rows, 5, requires_grad=True)
    empty = LossBatch(
        logp, logp.detach(), logp.detach(), logp.detach(),
        torch.zeros(rows, 5, dtype=torch.bool), torch.ones(rows),
        torch.ones(rows, 5), torch.ones(rows, 5, dtype=torch.bool),
    )  # fmt: skip
    for step in (normalizer, Normalizer(rows=0, tokens=0, max_completion_tokens=5)):
        output = make(cls, **FULL)(empty, step)
        output.loss.backward()
        assert output.loss.item() == 0
        assert (logp.grad == 0).all()
    totals = {name: (a.item(), n.item()) for name, (a, n) in output.sums.items()}
    assert finish(totals, {name: m.item() for name, m in output.maxima.items()}) == {}


# -- the step is one thing, however it is cut ----------------------------------------------------


@pytest.mark.parametrize("cls", LOSSES)
@pytest.mark.parametrize("options", [{}, FULL], ids=["defaults", "everything"])
@pytest.mark.parametrize("sizes", [[8], [4, 4], [1] * 8, [3, 5], [7, 1]], ids=str)
def test_t10_split_does_not_change_loss_gradient_or_metrics(
    cls, options, sizes, make_batch, rows_of, count
):
    batch = make_batch(8, 12)
    loss = make(cls, **options)
    step = count(batch)
    whole = loss(batch, step)
    leaves = [batch.logp_BT, batch.entropy_BT]
    whole_grads = torch.autograd.grad(whole.loss, leaves, allow_unused=True)

    outputs = [loss(rows_of(batch, part), step) for part in torch.arange(8).split(sizes)]
    total = sum(output.loss for output in outputs)
    grads = torch.autograd.grad(total, leaves, allow_unused=True)
    torch.testing.assert_close(total, whole.loss, rtol=0, atol=1e-12)
    torch.testing.assert_close(grads[0], whole_grads[0], rtol=0, atol=1e-12)
    assert (whole_grads[1] is None) == (options == {})
    torch.testing.assert_close(grads[1], whole_grads[1], rtol=0, atol=1e-12)
    assert gather(outputs) == pytest.approx(gather([whole]), abs=1e-12)


def gather(outputs):
    sums = {
        name: tuple(sum(o.sums[name][i].item() for o in outputs) for i in (0, 1))
        for name in outputs[0].sums
    }
    maxima = {name: max(o.maxima[name].item() for o in outputs) for name in outputs[0].maxima}
    return finish(sums, maxima)


@pytest.mark.parametrize("cls", LOSSES)
def test_row_without_loss_tokens_counts_in_no_denominator(cls, make_batch, rows_of, count):
    # a known difference from TRL, which counts such a row for grpo and dr_grpo
    batch = make_batch(5, 6)
    mask = batch.mask_BT.clone()
    mask[2] = False
    masked = replace(batch, mask_BT=mask)
    without = rows_of(batch, torch.tensor([0, 1, 3, 4]))
    assert count(masked) == count(without)
    loss = make(cls)
    value, _ = value_and_grad(loss, masked, count(masked))
    assert value == pytest.approx(loss(without, count(without)).loss.item(), abs=1e-12)


def test_t9_dr_grpo_divides_by_the_cap_so_its_gradient_is_smaller_than_grpos(make_batch, count):
    batch = make_batch(8, 10)
    batch = replace(batch, old_logp_BT=batch.logp_BT.detach())
    off = {"importance_correction": {"mode": "off"}}
    lengths = batch.mask_BT.sum(dim=1, keepdim=True)
    for cap in (10, 512):
        step = count(batch, max_completion_tokens=cap)
        _, grpo = value_and_grad(make(GRPO, **off), batch, step)
        _, dr_grpo = value_and_grad(make(DrGRPO, **off), batch, step)
        torch.testing.assert_close(dr_grpo, grpo * lengths / cap, rtol=1e-12, atol=0)
    assert make(DrGRPO).traits.advantage == "center"


@pytest.mark.parametrize("cls", LOSSES)
def test_world_size_undoes_the_averaging_of_gradients(cls, batch, normalizer):
    alone, grad = value_and_grad(make(cls), batch, normalizer)
    value, scaled = value_and_grad(make(cls), batch, replace(normalizer, world_size=4))
    assert value == pytest.approx(4 * alone)
    torch.testing.assert_close(scaled, 4 * grad)


# -- metrics and borders -------------------------------------------------------------------------


def test_metrics_by_hand():
    ratios = torch.tensor([[1.5, 0.5, 1.0], [1.5, 0.5, 7.0]], dtype=torch.float64)
    logp = (ratios.log() - 1).requires_grad_()
    old = torch.full_like(ratios, -1.0)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    advantage = torch.tensor([1.0, -1.0], dtype=torch.float64)
    batch = LossBatch(logp, old, old, logp.detach() - 1, mask, advantage)
    metrics = gather([make(GRPO, beta=0.1)(batch, Normalizer(2, 5, 3))])
    assert metrics["clip_fraction/high"] == 1 / 5
    assert metrics["clip_fraction/low"] == 1 / 5
    assert metrics["ratio/mean"] == pytest.approx(5 / 5)
    assert metrics["ratio/max"] == pytest.approx(1.5)
    assert metrics["kl/mean"] == pytest.approx(math.exp(-1))
    assert metrics["kl/max"] == pytest.approx(math.exp(-1))
    assert metrics["mismatch/ess"] == 1


@pytest.mark.parametrize("cls", LOSSES)
def test_t13_what_is_not_computed_is_absent(cls, batch, normalizer):
    output = make(cls)(batch, normalizer)
    assert not any(name.startswith("kl/") for name in {**output.sums, **output.maxima})
    assert not any("entropy" in name for name in {**output.sums, **output.maxima})


def test_t13_entropy_is_reported_where_it_is_known(batch, normalizer):
    known = replace(batch, entropy_BT=torch.where(batch.mask_BT, batch.ref_logp_BT, 99.0))
    metrics = gather([make(GRPO)(known, normalizer)])
    assert metrics["entropy/mean"] == pytest.approx(batch.ref_logp_BT[batch.mask_BT].mean().item())
    assert "entropy/chosen" not in metrics
    chosen = batch.mask_BT & (torch.arange(6) < 2)
    metrics = gather(
        [make(GRPO, top_entropy=0.5)(replace(batch, entropy_mask_BT=chosen), normalizer)]
    )
    assert metrics["entropy/chosen"] == 7 / 14
    assert "entropy/mean" not in metrics


@pytest.mark.parametrize("cls", LOSSES)
def test_every_loss_declares_its_metrics(cls, make_batch, count):
    batch = make_batch(4, 5)
    metrics = gather([make(cls, **FULL)(batch, count(batch))])
    check_declared(make(cls, **FULL), metrics, core=True)


@pytest.mark.parametrize("cls", LOSSES)
def test_is_a_loss_component(cls):
    loss = make(cls)
    assert isinstance(loss, Loss)
    assert config_class(cls) is cls.Config
    assert loss.traits.needs_reference is False
    assert make(cls, beta=1e-3).traits.needs_reference is True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 1.1}, "delta"),
        ({"clip_low": 0.0}, "clip_low"),
        ({"beta": -1.0}, "beta"),
        ({"importance_correction": {"cap": 0.5}}, "cap"),
        ({"eps": 0.2}, "eps"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        GRPO.Config(**options)


def test_old_log_probs_with_a_graph_do_not_cancel_the_gradient(batch, normalizer):
    _, grad = value_and_grad(make(GRPO), replace(batch, old_logp_BT=batch.logp_BT), normalizer)
    assert (grad[batch.mask_BT] != 0).all()


def test_sft_is_the_mean_over_all_answer_tokens():
    logp = torch.tensor([[-1.0, -2.0], [-4.0, 9.0]], requires_grad=True)
    mask = torch.tensor([[True, True], [True, False]])
    old = logp.detach()
    batch = LossBatch(logp, old, old, None, mask, old[:, 0])
    output = SFT(SFT.Config())(batch, Normalizer(rows=2, tokens=3, max_completion_tokens=2))
    output.loss.backward()
    assert output.loss.item() == pytest.approx(7 / 3)
    third = -1 / 3
    torch.testing.assert_close(logp.grad, torch.tensor([[third, third], [third, 0.0]]))
