"""Plain functions as advantage estimators, losses and schedules."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from rlvr_core.api import (
    AdvantageTraits,
    ConfigError,
    JudgedStep,
    LossTraits,
    PluginError,
)
from rlvr_core.config.model import ComponentRef
from rlvr_core.config.resolve import build, find
from rlvr_core.config.tree import Mark, made
from rlvr_core.plugins.host import load_host

PARTS = """
import torch
from rlvr_core.api import AdvantageOutput, AdvantageTraits, LossOutput, LossTraits

def doubled(step):
    return [2 * reward for reward in step.reward_N]

def doubled_tensor(step):
    return 2 * torch.as_tensor(step.reward_N)

def counted(step):
    return AdvantageOutput(2 * step.reward_N, {"n": len(step.reward_N)})

def by_token(step):
    return [[reward, 0.0] for reward in step.reward_N]
by_token.traits = AdvantageTraits(per_token=True)

def nothing(step):
    pass

def surrogate(batch, normalizer):
    ratio_BT = (batch.logp_BT - batch.old_logp_BT).exp()
    loss_BT = -ratio_BT * batch.advantage_B[:, None] * batch.mask_BT
    return LossOutput(loss_BT.sum() / normalizer.tokens, {}, {})

def regularised(batch, normalizer):
    return surrogate(batch, normalizer)
regularised.traits = LossTraits(advantage="center", needs_reference=True)

def bare(batch, normalizer):
    return batch.logp_BT.sum()

def halving(progress):
    return 1 - progress / 2

def wordy(progress):
    return "half"

def two(one, other):
    return 1.0
"""

STEP = JudgedStep(
    groups=(),
    group_N=np.zeros(2, dtype=np.int64),
    reward_N=np.array([1.0, -3.0]),
    score_NK=np.zeros((2, 1)),
    weights=(1.0,),
)


@pytest.fixture(scope="module")
def host():
    return load_host({"RLVR_PLUGINS": ""})


@pytest.fixture
def component(host, tmp_path, monkeypatch):
    """The component of a kind that a function of the file stands for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(PARTS)
    return lambda kind, name: build(host, kind, ComponentRef(use=f"./mine.py:{name}"), "here")


@pytest.mark.parametrize("name", ["doubled", "doubled_tensor", "counted"])
def test_an_advantage_function_gives_a_list_an_array_or_the_output(component, name):
    estimator = component("advantage", name)
    output = estimator(STEP)
    assert np.asarray(output.advantages).tolist() == [2.0, -6.0]
    assert output.metrics == ({"n": 2} if name == "counted" else {})
    assert estimator.traits == AdvantageTraits()


def test_traits_are_an_attribute_of_the_function(component):
    assert component("advantage", "by_token").traits == AdvantageTraits(per_token=True)
    assert component("loss", "surrogate").traits == LossTraits(advantage="group")
    wanted = LossTraits(advantage="center", needs_reference=True)
    assert component("loss", "regularised").traits == wanted


@pytest.mark.parametrize(
    ("kind", "name", "arguments", "says"),
    [
        ("advantage", "nothing", (STEP,), "the function nothing gave None"),
        ("schedule", "wordy", (0.5,), "the function wordy gave str, not a number"),
    ],
)
def test_what_a_function_must_not_give_is_told_with_its_line(
    component, kind, name, arguments, says
):
    with pytest.raises(PluginError, match=says) as caught:
        component(kind, name)(*arguments)
    file, _, line = caught.value.complaints[0].where.rpartition(":")
    assert file.endswith("mine.py")
    assert PARTS.splitlines()[int(line) - 1].startswith(f"def {name}(")


@pytest.mark.parametrize(
    ("kind", "name", "form"),
    [
        ("advantage", "two", "def two(step)"),
        ("schedule", "two", "def two(progress)"),
        ("loss", "halving", "def halving(batch, normalizer)"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(component, kind, name, form):
    with pytest.raises(ConfigError, match="cannot be called with") as caught:
        component(kind, name)
    assert caught.value.complaints[0].remedy == (f"write it as {form}",)


def test_a_function_takes_no_options(component, host):
    root = made({"with": {"factor": 2}}, Mark("here"))
    with pytest.raises(ConfigError, match="unknown option 'factor'"):
        find(host, "advantage", "./mine.py:doubled", {"factor": 2}, root, ())
    assert component("advantage", "doubled")
