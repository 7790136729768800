"""``rlvr selftest CONFIG``: what a working trainer passes and a broken one does not."""

import dataclasses

import pytest
import torch

from plugins.rlvr_doctor.tests.doctor import planted
from rlvr_core.plugins.host import load_host
from rlvr_core.step.optim import Optimizer
from rlvr_core.step.step import PolicyTrainer
from rlvr_doctor.examination.selftest import SelfTest

pytestmark = pytest.mark.slow


@pytest.fixture
def selftest(tmp_path):
    def make(steps=6):
        return SelfTest(planted.written([], tmp_path), (), load_host(), steps)

    return make


def found(test):
    return {finding.id: finding for finding in test.report.findings}


@pytest.mark.essential
def test_a_healthy_trainer_passes_all(selftest, tmp_path):
    test = selftest()
    report = test.run()
    assert [(finding.id, finding.level) for finding in report.findings] == [
        ("selftest/lr0", "ok"),
        ("selftest/direction", "ok"),
        ("selftest/overfit", "ok"),
        ("selftest/resume", "ok"),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml"]


def test_a_reversed_sign_goes_against_the_rewards(selftest, monkeypatch):
    update = PolicyTrainer.update

    def reversed_rewards(self, groups, step, version):
        turned = [
            dataclasses.replace(
                group,
                members=tuple(dataclasses.replace(m, reward=-m.reward) for m in group.members),
            )
            for group in groups
        ]
        return update(self, turned, step, version)

    test = selftest()
    test.drift()
    monkeypatch.setattr(PolicyTrainer, "update", reversed_rewards)
    test.learning()
    answer = found(test)["selftest/direction"]
    assert answer.level == "fail"
    assert "against the rewards" in answer.text


def test_a_weight_that_drifts_at_lr_0_is_named(selftest, monkeypatch):
    step = Optimizer.step

    def drifting(self, number):
        update = step(self, number)
        with torch.no_grad():
            self.parameters[0].mul_(0.999)
        return update

    monkeypatch.setattr(Optimizer, "step", drifting)
    test = selftest()
    test.drift()
    answer = found(test)["selftest/lr0"]
    assert answer.level == "fail"
    assert "1 of 35 tensors changed" in answer.text


def test_an_optimizer_state_that_is_not_restored_is_named(selftest, monkeypatch):
    monkeypatch.setattr(Optimizer, "load_state_tensors", lambda self, tensors: None)
    test = selftest()
    test.resume()
    answer = found(test)["selftest/resume"]
    assert answer.level == "warn"
    assert "weights differ" in answer.text
