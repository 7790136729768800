"""Four gloo processes, two copies split over two each, take the optimizer steps of one process."""

import pytest
import torch

from rlvr_core.api import ConfigError
from rlvr_core.config.model import TrainSection
from rlvr_core.parallel.model import ParallelModel
from rlvr_core.parallel.ranks import Ranks

WORKER = "hsdp_worker"


@pytest.fixture(scope="module")
def four(started):
    """What each of four processes finds."""
    return started(4)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["plain", "moving", "clipped"])
def test_metrics_weights_and_moments_are_those_of_one_process(alone, four, case):
    one = alone[case]
    for rank in four:
        many = rank[case]
        for ours, theirs in zip(one["metrics"], many["metrics"], strict=True):
            assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-5, nan_ok=True)
        assert one["applied"] == many["applied"]
        for kind in ("weights", "moments", "reference"):
            torch.testing.assert_close(one[kind], many[kind], rtol=1e-4, atol=3e-6)
        assert one["probe"] == pytest.approx(many["probe"], rel=1e-4)
    for name, weight in four[0][case]["weights"].items():
        assert all(torch.equal(weight, rank[case]["weights"][name]) for rank in four[1:])


@pytest.mark.slow
def test_each_process_holds_half_and_there_are_two_copies(four):
    assert {rank["mesh"] for rank in four} == {(2, 2)}
    held = [rank["held"] for rank in four]
    assert held[0] + held[1] == held[2] + held[3] == 1
    assert held[0] == pytest.approx(0.5, abs=0.02)


def test_sets_that_do_not_come_out_even_are_refused():
    ranks = Ranks(0, 6)
    ParallelModel(ranks, "fsdp", 3)
    with pytest.raises(ConfigError, match=r"shard_size 4 does not divide the 6 processes") as error:
        ParallelModel(ranks, "fsdp", 4)
    assert error.value.complaints[0].remedy[0].startswith("one of 1, 2, 3, 6")


def test_without_fsdp_it_has_no_effect_and_says_so():
    with pytest.raises(ValueError, match="no effect without parallel: fsdp"):
        TrainSection(steps=1, shard_size=2)
