"""Groups of an older policy version: decoupled PPO, so three log-probs a token and not two."""

from __future__ import annotations

import math

import pytest

from rlvr_core.api import Completion, Group, Judged, Problem
from rlvr_core.config.model import TrainSection
from rlvr_core.losses import DAPO
from rlvr_core.step.objective import LossTerm
from tests.support.train.small import small_model, small_trainer


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
    return small_trainer(small_model(), [LossTerm("noting", loss)], train), loss


def mismatch(metrics):
    return {name: value for name, value in metrics.items() if "mismatch/" in name}


def test_the_sampling_policy_and_the_trainer_are_compared_on_every_row():
    """What older weights sampled is weighed from them to the policy at the start of the step."""
    fresh, stale = group(1, version=4), group(2, version=2)
    trainer, loss = make_trainer()
    found = mismatch(trainer.update([fresh, stale], 0, 4).metrics)
    (batch,) = loss.seen
    assert batch.logp_BT.shape == (4, 2)
    d_BT = (batch.logp_BT.detach() - batch.behaviour_logp_BT).double()
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
    # a step of stale rows alone reports them too
    assert mismatch(make_trainer()[0].update([stale], 0, 4).metrics).keys() == found.keys()
