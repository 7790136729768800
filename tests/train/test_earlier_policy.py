"""What an engine sampled beside training is looked at under the weights that it had then."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from test_streams import Lab, greedy_at  # type: ignore

from rlvr_core.api import EngineTraits, GroupsScored, RunError, RunStarted
from rlvr_core.builtin.invariants import earlier_policy, moments, trainer_pass
from rlvr_core.builtin.invariants.invariants import invariants_of
from rlvr_core.engines.sampling import completion_seed


class Ahead:
    """Steps whose completions were sampled while the step before trained."""

    def __init__(self, **train):
        self.lab = Lab(max_staleness=1, **train)
        guard = self.lab.guard
        guard._checks = {"earlier": guard_of(self.lab)}
        self.model, self.given = self.lab.trainer.model, []

    def steps(self, n, change=lambda groups: groups, seed=completion_seed):
        """Take steps: judge what is there, sample under the weights of now, and move these."""
        groups = self.lab.sampled(seed, 0)
        for step in range(n):
            self.lab.guard.step_begins(groups, step, step)
            self.lab.guard.on_groups(GroupsScored(step, step, change(groups)))
            self.lab.guard.update_begins()
            self.given.append(sum(len(m.completion.token_ids) for g in groups for m in g.members))
            groups = self.lab.sampled(seed, step)
            generator = torch.Generator().manual_seed(step)
            with torch.no_grad():
                for weight in self.model.parameters():
                    weight.add_(0.3 * torch.randn(weight.shape, generator=generator))

    @property
    def tokens(self):
        """Tokens that ``calibration`` has looked at."""
        return self.lab.guard._checks["earlier"]._checks[-1]._tokens


def guard_of(lab):
    own = SimpleNamespace(traits=EngineTraits(inverts_stream=True))
    found = invariants_of(lab.config, lab.trainer, own, lab.sampler)._checks["earlier"]
    found.run_started(RunStarted(Path(), {}, 0))
    return found


def weights(model):
    return {name: one.clone() for name, one in model.state_dict().items()}


def test_steps_of_which_each_is_one_version_behind_are_quiet_and_looked_at():
    ahead = Ahead()
    ahead.steps(5)
    # those of the first step are of the policy of now
    assert ahead.tokens == sum(ahead.given[1:]) > 400


def test_completions_of_still_older_policies_are_left_alone():
    """Nobody has the weights of two steps ago."""
    ahead = Ahead()
    ahead.steps(4, lambda groups: tuple(replace(one, version=one.version - 1) for one in groups))
    assert ahead.tokens == 0


def test_the_model_has_its_own_weights_afterwards_bit_for_bit():
    ahead = Ahead()
    earlier = ahead.lab.guard._checks["earlier"]
    earlier._keep(0)
    before = weights(ahead.model)
    with torch.no_grad():
        for weight in ahead.model.parameters():
            weight.mul_(1.1)
    now = weights(ahead.model)
    inside = {}

    def fails():
        with earlier._in_place():
            inside.update(weights(ahead.model))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert all(torch.equal(inside[name], one) for name, one in before.items())
    assert all(torch.equal(one, now[name]) for name, one in weights(ahead.model).items())


def test_seeds_of_another_run():
    with pytest.raises(RunError, match="guard seeds") as caught:
        Ahead().steps(4, seed=lambda run, *parts: completion_seed(run + 1, *parts))
    assert "the seeds of completions are others" in str(caught.value)


def test_a_sampler_that_is_greedy_at_one_place(monkeypatch):
    ahead = Ahead()
    greedy_at(2)(monkeypatch)
    with pytest.raises(RunError, match="guard seeds") as caught:
        ahead.steps(4)
    assert "at position 3 of completions the likeliest token is always taken" in str(caught.value)


def test_log_probs_that_are_those_of_another_temperature():
    """Log-probs of 1.1 times the size have the slope 1 / 1.1 = 0.909."""

    def larger(groups):
        return tuple(
            replace(
                group,
                members=tuple(
                    replace(
                        member,
                        completion=replace(
                            member.completion,
                            logprobs=tuple(1.1 * p for p in member.completion.logprobs),
                        ),
                    )
                    for member in group.members
                ),
            )
            for group in groups
        )

    with pytest.raises(RunError, match="guard parity") as caught:
        Ahead().steps(3, larger)
    assert "slope 0.909" in str(caught.value)
    assert "of the policy that sampled differ from the engine's at version 0" in str(caught.value)


def test_large_models_are_looked_at_now_and_then(monkeypatch):
    """Kept at step 16 and looked at in step 17, the completions of one step of 18."""
    monkeypatch.setattr(earlier_policy, "LARGE", 1)
    ahead = Ahead()
    ahead.steps(15)
    assert ahead.tokens == 0
    ahead.steps(3)
    assert ahead.tokens > 0


def test_no_copy_is_made_where_memory_is_short(monkeypatch):
    monkeypatch.setattr(earlier_policy, "SHARE", 0.0)
    ahead = Ahead()
    ahead.steps(3)
    assert ahead.tokens == 0


def test_a_wrong_pass_of_the_trainer_is_named_and_not_the_engine(monkeypatch):
    """Its log-probs are of rows whose tokens stand one place further on."""
    lab, predict = Lab(), moments.predict

    def shifted(model, batch, *more):
        ids_SP = batch.prompt_ids_SP.clone()
        ids_SP[:, 0] = 9
        return predict(model, replace(batch, prompt_ids_SP=ids_SP), *more)

    monkeypatch.setattr(moments, "predict", shifted)
    with pytest.raises(RunError, match="the log-probs of the trainer are wrong") as caught:
        lab.steps(0, 4)
    assert "positions, packing and attention" in str(caught.value)


def test_a_right_pass_is_not_accused(monkeypatch):
    found = []
    wrong_pass = trainer_pass.wrong_pass
    monkeypatch.setattr(
        "rlvr_core.builtin.invariants.streams.wrong_pass",
        lambda *arguments: found.append(wrong_pass(*arguments)),
    )
    with pytest.raises(RunError, match="the seeds of completions are others"):
        Lab().steps(0, 3, lambda run, *parts: completion_seed(run + 1, *parts))
    assert found == [None]
