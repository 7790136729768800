"""Traps of evaluation that a small test can show."""

import pytest

from rlvr_core.api import ConfigError
from rlvr_core.config.model import ComponentRef
from rlvr_core.eval.dataset_task import DatasetTask
from rlvr_core.stats.estimates import estimate


def dataset_task(**options):
    given = {"repo": "nowhere/none", "verifier": "core/exact", "prompt": "q", **options}
    ref = ComponentRef.model_validate({"use": "core/hub", "with": given})
    return DatasetTask(DatasetTask.Config(data=ref))


def test_t75_an_evaluation_of_any_data_must_name_its_split():
    """Loaders of training data give the training split by default; nothing is fetched before."""
    with pytest.raises(ConfigError, match=r"which split of core/hub\?.*'train' by default") as told:
        dataset_task().problems()
    assert "core/dataset" in told.value.complaints[0].where


def test_t86_thirty_problems_come_with_their_interval():
    """10 of 30, by hand: centre (1/3 + z^2/60) / (1 + z^2/30) = .35225, half width .15995."""
    found = estimate([1.0] * 10 + [0.0] * 20)
    assert found.n == 30
    assert found.low == pytest.approx(0.1923, abs=1e-4)
    assert found.high == pytest.approx(0.5122, abs=1e-4)
