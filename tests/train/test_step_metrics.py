"""The numbers of a step of several updates, worked out by hand.

Each loss gives numbers that the test chose: a value, and a gradient of that norm.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from rlvr_core.api import Completion, Group, Judged, LossOutput, LossTraits, Problem
from rlvr_core.config.model import TrainSection
from rlvr_core.step.batch import Row
from rlvr_core.step.objective import LossTerm
from tests.support.train.small import small_model, small_trainer


class Says:
    """A loss whose value and gradient norm in each update are given, and that notes its rows."""

    traits = LossTraits(advantage="group")

    def __init__(self, *values, slopes=(), noted=()):
        self.values, self.slopes, self.noted = iter(values), iter(slopes), noted
        self.rows, self.parameter = [], None

    def __call__(self, batch, normalizer):
        self.rows.append(batch.logp_BT.shape[0])
        ones = batch.mask_BT.sum()
        sums = {"ratio/mean": (next(self.noted) * ones, ones)} if self.noted else {}
        slope = next(self.slopes, 0.0) * (self.parameter - self.parameter.detach())
        return LossOutput(next(self.values) + slope + 0 * batch.logp_BT.sum(), sums, {})


def group(place, *, reward=1.0):
    """Two completions of one token; without a reward neither is trained on."""
    done = Completion((1 + place,), (5,), (-1.0,), (True,), "", "stop")
    rewards = [None, None] if reward is None else [reward, 0.0]
    members = tuple(Judged(done, {}, one, None) for one in rewards)
    return Group(Problem(f"p{place}", "?", "v", {}, "toy"), members, 0)


def answers(count):
    rows = [Row((1,), (2 + i,), (True,), (0.0,), 0.0) for i in range(count)]
    return SimpleNamespace(rows=lambda step: rows)


def trainer_of(*terms, **train):
    model = small_model()
    for term in terms:
        term.loss.parameter = model.lm_head.weight[0, 0]
    section = TrainSection(steps=9, lr=1e-3, warmup_steps=0, tokens_per_micro_batch=10_000, **train)
    return small_trainer(model, terms, section)


def test_t13_a_mini_batch_without_a_row_of_a_term_is_no_zero_of_it():
    """Three updates; the last one has answers alone, as its group has no reward."""
    made = trainer_of(
        LossTerm("grpo", Says(2.0, 4.0)),
        LossTerm("sft", Says(10.0, 20.0, 30.0), weight=0.5, demonstrations=answers(3)),
        mini_batches=3,
    )
    report = made.update([group(0), group(1), group(2, reward=None)], 0, 0)
    assert report.applied == 3
    assert report.metrics["loss/grpo"] == pytest.approx((2 + 4) / 2)
    assert report.metrics["loss/sft"] == pytest.approx((10 + 20 + 30) / 3)
    # what was optimised: 2 + 5, 4 + 10, 15
    assert report.metrics["loss"] == pytest.approx((7 + 14 + 15) / 3)


def test_t13_a_term_that_no_update_had_is_absent():
    made = trainer_of(
        LossTerm("grpo", Says()), LossTerm("sft", Says(3.0), weight=0.5, demonstrations=answers(1))
    )
    metrics = made.update([group(0, reward=None)], 0, 0).metrics
    assert metrics["loss"] == 1.5
    assert metrics["loss/sft"] == 3.0
    assert "loss/grpo" not in metrics


def test_what_is_asked_is_what_happens_when_there_are_groups_enough():
    """Three of five groups have a reward: three updates, whichever they are."""
    for without in ((0, 1), (1, 4), (3, 4), (0, 3)):
        loss = Says(*range(3))
        made = trainer_of(LossTerm("grpo", loss), mini_batches=3)
        groups = [group(i, reward=None if i in without else 1.0) for i in range(5)]
        report = made.update(groups, 0, 0)
        assert report.metrics["updates/applied"] == 3
        assert loss.rows == [2, 2, 2]
        assert report.metrics["rows/read"] == report.metrics["rows"] == 6


@pytest.mark.parametrize(
    ("count", "policy"), [(0, []), (1, [2]), (3, [2, 2, 2]), (4, [2] * 4), (6, [4, 4, 2, 2])]
)
def test_given_answers_are_dealt_alike_however_many_groups_a_step_has(count, policy):
    """Ten answers in four parts: 3, 3, 2 and 2, and four updates in each iteration."""
    grpo, sft = Says(*range(8)), Says(*range(8))
    made = trainer_of(
        LossTerm("grpo", grpo),
        LossTerm("sft", sft, demonstrations=answers(10)),
        mini_batches=4,
        num_iterations=2,
    )
    metrics = made.update([group(i) for i in range(count)], 0, 0).metrics
    assert sft.rows == [3, 3, 2, 2] * 2
    assert grpo.rows == policy * 2
    assert metrics["updates/applied"] == 8
    assert metrics["sft/rows"] == 10
    assert metrics["sft/rows/read"] == 20


NAN = float("nan")


def test_t4_means_are_over_the_updates_that_were_applied():
    """Of two mini-batches in two iterations the first and the last are not finite."""
    loss = Says(
        NAN, 4.0, 6.0, 8.0, slopes=(NAN, 2.0, 3.0, math.inf), noted=iter((NAN, 1.25, 1.75, 9))
    )
    made = trainer_of(LossTerm("grpo", loss), mini_batches=2, num_iterations=2)
    report = made.update([group(0), group(1)], 0, 0)
    assert [update.applied for update in report.updates] == [False, True, True, False]
    metrics = report.metrics
    assert metrics["updates/applied"] == metrics["updates/skipped"] == 2
    assert metrics["loss"] == pytest.approx((4 + 6) / 2)
    assert metrics["grad_norm"] == pytest.approx((2 + 3) / 2)
    assert math.isnan(metrics["grad_norm/max"])
    # each has two tokens
    assert metrics["ratio/mean"] == pytest.approx((1.25 + 1.75) / 2)
    assert metrics["iteration/1/ratio/mean"] == pytest.approx(1.25)
    assert metrics["iteration/2/ratio/mean"] == pytest.approx(1.75)


def test_t4_an_iteration_that_applied_nothing_has_no_mean():
    loss = Says(2.0, NAN, slopes=(1.0, NAN), noted=iter((1.5, NAN)))
    made = trainer_of(LossTerm("grpo", loss), num_iterations=2)
    metrics = made.update([group(0), group(1)], 0, 0).metrics
    assert metrics["ratio/mean"] == metrics["iteration/1/ratio/mean"] == pytest.approx(1.5)
    assert "iteration/2/ratio/mean" not in metrics


def test_t4_a_step_that_applied_nothing_says_what_was_not_finite():
    made = trainer_of(LossTerm("grpo", Says(NAN, 2.0, slopes=(NAN, math.inf))), mini_batches=2)
    report = made.update([group(0), group(1)], 0, 0)
    assert report.applied == 0
    assert math.isnan(report.metrics["loss"])
    assert not math.isfinite(report.metrics["grad_norm"])
    assert report.metrics["updates/skipped"] == 2
