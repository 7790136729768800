"""Parity by how far into its completion a token is, and by what all tokens are off alike."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from test_invariants import fault, sample, steps, trainer_with
from test_positions import changed

from rlvr_core.api import RunError
from rlvr_core.builtin.invariants.by_depth import ENDS, ByDepth
from rlvr_core.builtin.invariants.parity import Parity

SLOPE, K3 = 1e-2, 1e-4
"""The bands of bfloat16 on a CPU."""


def drawn(n, depth, noise, *, seed=0, late=1.0, after=16):
    """Log-probs of two sides, (n, depth): the one is the other with noise, and tilted late."""
    generator = torch.Generator().manual_seed(seed)
    engine_BT = -torch.rand(n, depth, generator=generator).mul(4).exp() / 10
    trainer_BT = engine_BT * torch.where(torch.arange(depth) >= after, late, 1.0)
    trainer_BT = trainer_BT + noise * torch.randn(n, depth, generator=generator)
    return trainer_BT, engine_BT


def test_parts_by_hand():
    trainer, engine = torch.full((2, 20), -1.0), torch.full((2, 20), -1.0)
    trainer[0, 3], trainer[1, 17] = -1.5, -4.0
    mask = torch.ones(2, 20, dtype=torch.bool)
    mask[1, 18:] = False
    found = ByDepth.of(trainer, engine, mask, 2.0)
    assert [part.n for part in found.parts] == [16, 16, 6, 0, 0, 0]
    assert [part.y for part in found.parts[:3]] == [-0.5, 0.0, -3.0]
    assert found.far == 1  # by 3 nats; 0.5 may be rounding
    assert ByDepth.of(trainer, trainer * torch.nan, mask, 2.0).far == 38
    assert ByDepth.from_numbers(found.numbers()).parts == found.parts
    assert ByDepth.from_numbers([1.0]) == ByDepth()


def test_rounding_is_quiet_at_any_depth():
    waiting = ByDepth()
    for step in range(200):
        both = drawn(8, 300, 0.006, seed=step)
        found = ByDepth.of(*both, torch.ones(8, 300, dtype=torch.bool), 2.0)
        waiting = waiting.add(found)
        assert waiting.worst(SLOPE, K3) is None
        assert not waiting.astray
        waiting = waiting.without_known(SLOPE)


@pytest.mark.parametrize(("after", "where"), [(16, "tokens 17 to 32"), (64, "tokens 65 to 256")])
def test_another_temperature_from_some_token_on(after, where):
    both = drawn(16, 80, 0.006, late=1.3, after=after)
    found = ByDepth.of(*both, torch.ones(16, 80, dtype=torch.bool), 2.0)
    assert found.worst(SLOPE, K3)[0].startswith(where)


def test_the_last_part_goes_on():
    both = drawn(2, 600, 0.006, late=0.7, after=ENDS[-1])
    found = ByDepth.of(*both, torch.ones(2, 600, dtype=torch.bool), 2.0)
    assert found.worst(SLOPE, K3)[0] == "tokens 257 on of completions"


def rare(completion):
    """One completion in eighteen has log-probs that are off by a tenth of a nat at its end."""
    off = 0.1 if completion.token_ids[0] % 18 == 0 else 0.0
    return (*completion.logprobs[:-1], completion.logprobs[-1] - off)


def test_a_few_tokens_that_are_far_off(monkeypatch):
    # among some more tokens k3 is within its band
    monkeypatch.setattr(Parity, "_check", lambda *given: None)
    trainer = trainer_with()
    groups = sample(trainer.model, n=12)
    hit = sum(rare(m.completion) != m.completion.logprobs for g in groups for m in g.members)
    assert 3 <= hit <= 8
    with pytest.raises(RunError, match=r"differ from the engine's at a few tokens of completions"):
        trainer.update(changed(groups, rare), 0, 0)


def shifted(by):
    return lambda completion: tuple(one + by for one in completion.logprobs)


@pytest.mark.parametrize(("by", "words"), [(3e-3, "below"), (-3e-3, "above")])
def test_log_probs_that_are_all_off_alike(by, words):
    # k3 is 4.5e-6 and the slope 1: the bands of bfloat16 are 1e-4 and 1e-2
    trainer = trainer_with()
    trainer.precision = SimpleNamespace(compute=torch.bfloat16, autocast=None)
    with pytest.raises(RunError, match=f"{words} the engine's by 0.003 nats on average, whatever"):
        trainer.update(changed(sample(trainer.model), shifted(by)), 0, 0)


def test_a_shift_within_rounding_is_quiet():
    trainer = trainer_with()
    trainer.precision = SimpleNamespace(compute=torch.bfloat16, autocast=None)
    trainer.update(changed(sample(trainer.model), shifted(3e-4)), 0, 0)


def test_a_row_that_counts_more_or_less_than_its_completion(monkeypatch):
    """Weights by group, by length, and of one row alone; sums over rows may stay."""
    import rlvr_core.step.step as step

    real = step.rows_of

    def weighing(weight):
        def rows_of(*args, **more):
            made = real(*args, **more)
            groups = [
                [replace(row, share=weight(row, n)) for row in rows]
                for n, rows in enumerate(made.by_group)
            ]
            return replace(made, by_group=groups)

        return rows_of

    for weight in (
        lambda row, n: 1.5 if n % 2 else 0.5,
        lambda row, n: len(row.token_ids) / 6,
        lambda row, n: 1.02,
    ):
        monkeypatch.setattr(step, "rows_of", weighing(weight))
        fault(trainer_with(), "tokens")
    monkeypatch.setattr(step, "rows_of", weighing(lambda row, n: 1.0))
    steps(trainer_with())
