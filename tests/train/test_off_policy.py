"""Groups of an older policy version: their old log-probs are those they were sampled with."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from small import small_model, small_trainer  # type: ignore

from rlvr_core.api.types import Completion, Group, Judged, Problem
from rlvr_core.builtin.losses.dapo import DAPO
from rlvr_core.config.model import TrainSection
from rlvr_core.step.objective import Term


class Noting(DAPO):
    """DAPO that remembers its batches."""

    def __init__(self):
        super().__init__(DAPO.Config())
        self.seen = []

    def __call__(self, batch, normalizer):
        self.seen.append(batch)
        return super().__call__(batch, normalizer)


def group(prompt, version):
    members = []
    for reward, logprob in ((1.0, -1.5), (0.0, -4.5)):
        completion = Completion((prompt,), (5, 6), (logprob, logprob), (True, True), "", "stop")
        members.append(Judged(completion, {}, reward, reward == 1.0))
    return Group(Problem(f"p{prompt}", "?", "v", {}, "toy"), tuple(members), version)


def make_trainer():
    loss = Noting()
    train = TrainSection(steps=9, lr=1e-3, warmup_steps=0)
    return small_trainer(small_model(), [Term("noting", loss)], train), loss


def test_only_rows_of_an_older_version_start_from_the_engines_log_probs():
    trainer, loss = make_trainer()
    report = trainer.update([group(1, version=4), group(2, version=3)], 0, 4)
    (batch,) = loss.seen
    stale_B = batch.old_logp_BT.eq(batch.behaviour_logp_BT).all(dim=1)
    fresh_B = batch.old_logp_BT.eq(batch.logp_BT.detach()).all(dim=1)
    assert stale_B.sum() == 2
    assert torch.equal(fresh_B, ~stale_B)
    # two rows have the ratio 1, the others exp(now - then)
    then_BT, now_BT = batch.behaviour_logp_BT, batch.logp_BT.detach()
    ratio_BT = torch.where(stale_B[:, None], (now_BT - then_BT).exp(), torch.ones(4, 2))
    assert abs(report.metrics["ratio/mean"] - float(ratio_BT.mean())) < 1e-5
    assert report.metrics["ratio/max"] > 1.0


def mismatch(metrics):
    return {name: value for name, value in metrics.items() if "mismatch/" in name}


def test_t13_engine_and_trainer_are_compared_on_fresh_rows_alone():
    """What older weights sampled has no log-probs of the trainer's to compare: no zeros for it."""
    fresh, stale = group(1, version=4), group(2, version=3)
    trainer, loss = make_trainer()
    found = mismatch(trainer.update([fresh, stale], 0, 4).metrics)
    (batch,) = loss.seen
    own_B = batch.on_policy_B
    assert own_B.sum() == 2
    d_BT = (batch.logp_BT.detach() - batch.behaviour_logp_BT)[own_B].double()
    weight_BT = d_BT.exp().clamp(max=2.0)
    expected = {
        "mismatch/abs_mean": d_BT.abs().mean(),
        "mismatch/abs_max": d_BT.abs().max(),
        "mismatch/k3": (d_BT.exp() - d_BT - 1).mean(),
        "mismatch/truncated": (d_BT > math.log(2.0)).double().mean(),
        "mismatch/weight": weight_BT.mean(),
        "mismatch/ess": weight_BT.mean() ** 2 / weight_BT.square().mean(),
    }
    assert found == pytest.approx({k: float(v) for k, v in expected.items()}, rel=1e-4)
    assert found["mismatch/ess"] < 1.0
    # they are those of the fresh group alone, and a step without a fresh row has none
    alone = make_trainer()[0].update([fresh], 0, 4).metrics
    assert found == pytest.approx(mismatch(alone), rel=1e-4)
    assert mismatch(make_trainer()[0].update([stale], 0, 4).metrics) == {}


def test_a_row_that_is_not_compared_has_the_weight_1(monkeypatch):
    trainer, loss = make_trainer()
    seen = []
    monkeypatch.setattr(
        loss, "weighed", lambda loss_BT, terms, weight_BT, tally: seen.append(weight_BT) or loss_BT
    )
    trainer.update([group(1, version=4), group(2, version=3)], 0, 4)
    (weight_BT,) = seen
    own_B = loss.seen[0].on_policy_B
    assert torch.equal(weight_BT[~own_B], torch.ones(2, 2))
    assert (weight_BT[own_B] != 1).all()
