"""What holds for every advantage estimator that is registered, and what a faulty one leads to."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

from rlvr_core.algorithm.estimate import Estimator, judged_step
from rlvr_core.api import (
    AdvantageEstimator,
    AdvantageOutput,
    AdvantageTraits,
    Completion,
    Group,
    Judged,
    PluginError,
    Problem,
    RunError,
    Verdict,
)
from rlvr_core.plugins.host import load_host

REGISTRY = load_host().registry


def estimator(name, **options):
    cls = REGISTRY.find("advantage", name).load()
    return Estimator(name, cls(cls.Config(**options)))


def group(rewards, place=0, masks=None):
    """Judged completions with these rewards; None has no reward."""
    members = []
    for i, reward in enumerate(rewards):
        mask = masks[i] if masks else (True, True)
        n = len(mask)
        done = Completion((1,), tuple(range(n)), (-1.0,) * n, tuple(mask), "", "stop")
        verdict = Verdict(None, "unscorable") if reward is None else Verdict(reward)
        members.append(Judged(done, {"r": verdict}, reward, None))
    return Group(Problem(f"p{place}", "?", "r", {}, "toy"), tuple(members), 0)


def of(made, *groups, kl=None):
    return made.of(judged_step(groups, [1.0], kl))


@pytest.mark.parametrize("entry", list(REGISTRY.of("advantage")), ids=lambda entry: entry.leaf)
def test_every_estimator_is_a_component_that_leaves_unscorable_completions_out(entry):
    made = estimator(entry.leaf)
    assert isinstance(made.component, AdvantageEstimator)
    kl = [np.zeros(2)] * 7 if made.component.traits.needs_reference_kl else None
    with_none = of(made, group([1.0, None, 0.0, 0.0, 0.0, 0.0, None]), kl=kl)
    without = of(made, group([1.0, 0.0, 0.0, 0.0, 0.0]), kl=kl and kl[:5])
    assert with_none.row_N[[1, 6]].tolist() == [0, 0]
    assert with_none.row_N[[0, 2, 3, 4, 5]] == pytest.approx(without.row_N, abs=1e-12)
    assert without.row_N[0] > 0 > without.row_N[1]
    again = of(made, group([1.0, 0.0, 0.0, 0.0, 0.0]), kl=kl and kl[:5])
    assert np.array_equal(again.row_N, without.row_N), "a pure function"


# -- faults of a plugin's estimator --------------------------------------------------------------


class Fixed:
    def __init__(self, given, per_token=False):
        self.given, self.traits = given, AdvantageTraits(per_token=per_token)

    def __call__(self, step):
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


@pytest.mark.parametrize(
    ("given", "per_token", "said"),
    [
        ([1.0, 2.0], False, "gave list, not an AdvantageOutput"),
        (AdvantageOutput([1.0]), False, r"gave advantages of shape \(1,\) for 2 completions"),
        (AdvantageOutput([[1.0], [2.0]]), False, r"gave advantages of shape \(2, 1\)"),
        (AdvantageOutput(["a", "b"]), False, "must give advantages as numbers"),
        (AdvantageOutput([1.0, math.nan]), False, r"gave the advantage nan to completion 1 .*p0"),
        (AdvantageOutput([1.0, 2.0]), True, r"shape \(\) for completion 0 of problem p0"),
        (AdvantageOutput([[1.0, 2.0]]), True, "gave advantages for 1 completions of 2"),
        (AdvantageOutput(7), True, "gave advantages for 0 completions of 2"),
        (AdvantageOutput([[1.0, 2.0], [1.0]]), True, r"shape \(1,\) for completion 1 of"),
        (AdvantageOutput([[1.0, 2.0], [1.0, math.inf]]), True, "advantage inf to completion 1"),
        (ZeroDivisionError("by zero"), False, "failed: ZeroDivisionError: by zero"),
    ],
)
def test_a_fault_of_an_estimator_is_named_as_its_own(given, per_token, said):
    made = Estimator("acme/odd", Fixed(given, per_token))
    with pytest.raises(PluginError, match=f":Fixed .*{said}") as caught:
        of(made, group([1.0, 0.0]))
    line = inspect.getsourcelines(Fixed)[1]
    assert caught.value.complaints[0].where == f"{__file__}:{line}"


def test_what_is_not_trained_on_may_be_anything():
    made = Estimator("odd", Fixed(AdvantageOutput([1.0, math.nan])))
    assert of(made, group([1.0, None])).row_N.tolist() == [1.0, 0.0]
    tokens = Fixed(AdvantageOutput([[1.0, math.nan], [math.nan, math.nan]]), per_token=True)
    found = of(Estimator("odd", tokens), group([1.0, None], 0, [[True, False], [True, True]]))
    assert [one.tolist() for one in found.token_N] == [[1.0, 0.0], [0.0, 0.0]]


def test_an_infinite_reward_is_refused():
    with pytest.raises(RunError, match=r"infinite reward of completions \[1\]"):
        of(estimator("group"), group([1.0, math.inf]))
