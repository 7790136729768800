"""Parity by position of a token in its row, and the precision of the log-probs of the loss."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from test_invariants import fault, in_training, sample, steps, trainer_with

from rlvr_core.api import GroupsScored, RunError
from rlvr_core.builtin.invariants.differences import LEAST, Positions
from rlvr_core.builtin.invariants.parity import Parity
from rlvr_core.step.model import Precision


def test_counts_by_hand():
    trainer = torch.tensor([[-1.0, -2.0, -0.3], [-0.1, -1e-9, 0.0]])
    engine = torch.tensor([[-0.4, -1.1, -0.3], [-0.1, 0.0, 0.0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    found = Positions.of(trainer, engine, mask, mask, 1e-5)
    # first: -1 against -0.4 is astray, -0.1 is not; last: -0.3, and a sure token is not counted;
    # other: -2 against -1.1 is not. Of four unsure tokens -1 and -2 are numbers of half precision,
    # and none of the engine's four
    assert list(found.counts) == [2, 1, 1, 0, 1, 0, 4, 2, 4, 0]
    alone = Positions.of(trainer[1:], engine[1:], mask[1:, :1], mask[1:, :1], 1e-5)
    assert list(alone.counts[:4]) == [1, 0, 0, 0]  # the only token of a row is its first


def test_few_tokens_wait_and_what_is_judged_is_forgotten():
    few = Positions([LEAST - 1, 0, LEAST, LEAST / 2, 0, 0, 3, 0, 2, 0])
    share, wrong, left = few.judged(strict=True)
    assert share == 0.5
    assert not wrong
    assert list(left.counts) == [LEAST - 1, 0, 0, 0, 0, 0, 3, 0, 2, 0]
    more = left.add(Positions([1, LEAST, 0, 0, 0, 0, 0, 0, 0, 0]))
    share, wrong, _ = more.judged(strict=True)
    assert share == 1
    assert "'first'" in wrong[0]
    assert more.judged(strict=False)[:2] == (1, ())


def changed(groups, change):
    """Groups whose recorded log-probs are changed."""
    return [
        replace(
            group,
            members=tuple(
                replace(
                    one,
                    completion=replace(one.completion, logprobs=tuple(change(one.completion))),
                )
                for one in group.members
            ),
        )
        for group in groups
    ]


def first_is_given(completion):
    return (0.0, *completion.logprobs[1:])


def last_is_fourfold(completion):
    return (*completion.logprobs[:-1], 4 * completion.logprobs[-1])


@pytest.mark.parametrize(
    ("change", "where"), [(first_is_given, "first"), (last_is_fourfold, "last")]
)
def test_log_probs_that_are_wrong_at_one_position(monkeypatch, change, where):
    # of a model that is sure of what it writes, slope and k3 hardly show it
    monkeypatch.setattr(Parity, "_check", lambda *given: None)
    trainer = trainer_with()
    groups = changed(sample(trainer.model, n=8), change)
    with pytest.raises(RunError, match=f"at the position '{where}'.* differ"):
        trainer.update(groups, 0, 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_log_probs_rounded_to_half_precision(monkeypatch, dtype):
    def rounded(real, model, batch, **more):
        logp_BT, *others = real(model, batch, **more)
        return (logp_BT + (logp_BT.to(dtype).float() - logp_BT).detach(), *others)

    in_training(monkeypatch, rounded)
    monkeypatch.setattr(Parity, "_check", lambda *given: None)
    fault(trainer_with(), "parity", "half precision", "float32")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_log_probs_that_the_engine_rounds(monkeypatch, dtype):
    monkeypatch.setattr(Parity, "_check", lambda *given: None)
    trainer = trainer_with()
    groups = changed(
        sample(trainer.model, n=8),
        lambda completion: torch.tensor(completion.logprobs).to(dtype).tolist(),
    )
    with pytest.raises(
        RunError, match=r"all \d+ log-probs that the engine reported are numbers of"
    ):
        trainer.update(groups, 0, 0)


@pytest.mark.parametrize("has", [torch.bfloat16, torch.float16])
def test_a_trainer_in_another_precision_than_the_configs(has):
    """Its bands would be those of the precision that it has."""
    trainer = trainer_with()
    trainer.precision = Precision(has)
    name = str(has).removeprefix("torch.")
    fault(trainer, "parity", f"the trainer computes in {name}, and model.dtype is float32")


def test_healthy_log_probs_are_nowhere_astray():
    lines = steps(trainer_with(), n=3)
    assert [line["parity/astray"] for line in lines] == [0, 0, 0]


def test_what_waits_survives_a_checkpoint():
    trainer = trainer_with()
    groups = sample(trainer.model, n_groups=1)
    trainer.observer.on_groups(GroupsScored(0, 0, tuple(groups)))
    trainer.update(groups, 0, 0)
    parity = trainer.observer._checks["parity"]
    saved = parity.state_dict()
    assert sum(saved["positions"]) > 0
    parity._positions = Positions()
    parity.load_state_dict(saved)
    assert parity.state_dict() == saved
