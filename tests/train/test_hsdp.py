"""Copies of a model that are split over sets of processes: which sets there can be."""

import pytest

from rlvr_core.api import ConfigError
from rlvr_core.config.model import TrainSection
from rlvr_core.parallel.model import ParallelModel
from rlvr_core.parallel.ranks import Ranks


def test_sets_that_do_not_come_out_even_are_refused():
    ranks = Ranks(0, 6)
    ParallelModel(ranks, "fsdp", 3)
    with pytest.raises(ConfigError, match=r"shard_size 4 does not divide the 6 processes") as error:
        ParallelModel(ranks, "fsdp", 4)
    assert error.value.complaints[0].remedy[0].startswith("one of 1, 2, 3, 6")


def test_without_fsdp_it_has_no_effect_and_says_so():
    with pytest.raises(ValueError, match="no effect without parallel: fsdp"):
        TrainSection(steps=1, shard_size=2)
