"""A tiny model learns a task of several turns: call the tool, read its result, answer."""

from pathlib import Path

import pytest

CONFIG = Path(__file__).parents[3] / "examples" / "tools.yaml"


@pytest.mark.slow
def test_a_tiny_model_learns_to_call_a_tool_read_its_result_and_answer(
    learns, trained_groups, rlvr, tmp_path, cache_dir
):
    """A seed that was not used to find the recipe."""
    task = "env/lookup"
    run = learns("tools.yaml", task, seed=11, cache=cache_dir, before=0.3, after=0.8)
    groups = trained_groups(run)
    rows = [row for group in groups for row in group["completions"]]
    called = [row for row in rows if len(row["transcript"]["turns"]) == 3]
    assert called
    for row in called:
        turns = row["transcript"]["turns"]
        assert [turn["role"] for turn in turns] == ["assistant", "tool", "assistant"]
        first, tool, last = (turn["n_tokens"] for turn in turns)
        assert row["loss_mask"] == [1] * first + [0] * tool + [1] * last
        theirs = slice(first, first + tool)
        assert set(row["logprobs"][theirs]) == {0.0}
        assert all(logp < 0 for logp in row["logprobs"][:first])

    shown = rlvr("show", "last", "--rollouts", "1", cwd=tmp_path, cache=cache_dir)
    assert "| tool: " in shown
