import math

import pytest
import torch

from rlvr_core.api import RunError
from rlvr_core.builtin.invariants.rounding import Difference, check_parity, measure_parity
from rlvr_core.config.model import ParitySection


def test_measure_worked_out_by_hand():
    parity = measure_parity(torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([-1.0, -2.5, -2.0]))
    assert parity == Difference(mean=0.5, max=1.0, tokens=3)


def test_t13_without_a_token_there_is_no_difference_to_tell():
    assert measure_parity(torch.zeros(0), torch.zeros(0)) is None


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_non_finite_counts_as_infinitely_far(bad):
    parity = measure_parity(torch.tensor([bad, -1.0]), torch.tensor([-1.0, -1.0]))
    assert math.isinf(parity.max)
    with pytest.raises(RunError):
        check_parity(parity, torch.float32, ParitySection(), version=0)


def test_bands_depend_on_dtype_and_can_be_set():
    rounding_of_bf16 = Difference(mean=0.03, max=0.3, tokens=100)
    check_parity(rounding_of_bf16, torch.bfloat16, ParitySection(), version=0)
    with pytest.raises(RunError, match="parity"):
        check_parity(rounding_of_bf16, torch.float32, ParitySection(), version=0)
    check_parity(rounding_of_bf16, torch.float32, ParitySection(mean=0.1, max=1.0), version=0)


def test_message_tells_first_step_from_first_sync():
    far = Difference(mean=1.0, max=5.0, tokens=10)
    with pytest.raises(RunError) as first:
        check_parity(far, torch.float32, ParitySection(), version=0)
    with pytest.raises(RunError) as later:
        check_parity(far, torch.float32, ParitySection(), version=1)
    assert "temperature" in str(first.value)
    assert "new weights" in str(later.value)


def test_the_first_step_of_a_resumed_run_says_so():
    far = Difference(mean=1.0, max=5.0, tokens=10)
    with pytest.raises(RunError, match="going on from the checkpoint") as resumed:
        check_parity(far, torch.float32, ParitySection(), version=4, resumed=True)
    assert "first step of a resumed run" in str(resumed.value)
    with pytest.raises(RunError) as later:
        check_parity(far, torch.float32, ParitySection(), version=4)
    assert "checkpoint" not in str(later.value)
