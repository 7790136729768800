"""A tiny model learns to write JSON that fits a schema and says what a command asks for."""

import pytest


@pytest.mark.slow
def test_a_tiny_model_learns_to_answer_commands_with_json(learns, trained_groups, tmp_path):
    """A seed that was not used to find the recipe."""
    cache = tmp_path / "cache"
    run = learns("json.yaml", "checks/commands", seed=11, cache=cache, before=0.4, after=0.8)
    rows = [row for group in trained_groups(run) for row in group["completions"]]
    details = {row["verdicts"]["checks/json"]["detail"] for row in rows}
    assert any("is not of type 'integer'" in detail for detail in details)
    assert any("not JSON" in detail or "no JSON" in detail for detail in details)
