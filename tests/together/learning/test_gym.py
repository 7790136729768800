"""A tiny model learns a generator of reasoning-gym."""

import pytest

pytest.importorskip("rlvr_gym")


@pytest.mark.slow
def test_a_tiny_model_learns_chain_sum(learns, trained_groups, tmp_path):
    """A seed that was not used to find the recipe."""
    cache = tmp_path / "cache"
    run = learns("gym.yaml", "gym/tiny", seed=23, cache=cache, before=0.35, after=0.5)
    assert trained_groups(run)
