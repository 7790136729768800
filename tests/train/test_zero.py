"""Two gloo processes take the optimizer steps of one, with DeepSpeed's ZeRO-2."""

from importlib.util import find_spec

import pytest
import torch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs rlvr-core[deepspeed]"),
]

WORKER = "zero_worker.py"
WHOLE = ["zero2", "clipped", "several"]


@pytest.mark.parametrize("case", WHOLE)
def test_metrics_weights_and_moments_are_those_of_one_process(alone, together, case):
    one, two = alone[case], together[0][case]
    for ours, theirs in zip(one["metrics"], two["metrics"], strict=True):
        assert ours.keys() == theirs.keys()
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-5, nan_ok=True)
    assert one["applied"] == two["applied"]
    for kind in ("weights", "moments", "reference"):
        assert one[kind].keys() == two[kind].keys()
        torch.testing.assert_close(one[kind], two[kind], rtol=1e-4, atol=3e-6)
    torch.testing.assert_close(one["parity"][0], two["parity"][0], rtol=1e-5, atol=1e-4)
    assert one["probe"] == pytest.approx(two["probe"], rel=1e-4)


@pytest.mark.parametrize("case", [*WHOLE, "half"])
def test_both_processes_hold_the_same(together, case):
    first, second = (rank[case] for rank in together)
    for kind in ("weights", "moments", "reference"):
        assert all(torch.equal(first[kind][name], second[kind][name]) for name in first[kind])
    assert str(first["metrics"]) == str(second["metrics"])  # as text: NaN is not equal to itself
    assert first["applied"] == second["applied"]
    assert first["scale"] == second["scale"]


def test_t14_float16_lowers_the_scale_in_both_processes_when_one_part_overflows(together):
    for rank in together:
        assert rank["half"]["applied"][2:] == [False, True]
        update, scale = rank["overflow"]
        assert (update.applied, update.calibrating) == (False, True)
        assert scale == 65536.0 / 2


def test_a_step_that_is_not_finite_leaves_weights_and_moments_bit_for_bit(together):
    for rank in together:
        assert rank["skipped"]["applied"] is False
        for before, after in zip(rank["skipped"]["before"], rank["skipped"]["after"], strict=True):
            assert before.keys() == after.keys() != set()
            assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_trainer_that_is_given_weights_and_moments_goes_on_bit_for_bit(together):
    for rank in together:
        found = rank["skipped"]
        for straight, resumed in zip(found["straight"], found["resumed"], strict=True):
            assert straight.keys() == resumed.keys()
            assert all(torch.equal(straight[name], resumed[name]) for name in straight)
        weights, _ = found["before"]
        assert any(not torch.equal(weights[name], found["straight"][0][name]) for name in weights)


def test_no_compiler_is_asked_for(together):
    for rank in together:
        assert rank["compilable"] == {}
