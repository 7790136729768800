"""A tiny model learns a task of several turns: call the tool, read its result, answer."""

import json
import os
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


def beside_training(rlvr, tmp_path, cache_dir, **settings):
    """What is shown of a run with conversations beside training, and its lines of metrics."""
    told = {"run.seed": 11, "model.path": "tiny:env/lookup?seed=11"} | settings
    words = [word for name, value in told.items() for word in ("--set", f"{name}={value}")]
    rlvr("run", CONFIG, "--display", "none", *words, cwd=tmp_path, cache=cache_dir)
    shown = json.loads(rlvr("show", "last", "--json", cwd=tmp_path, cache=cache_dir))
    assert shown["ledger"]["balanced"] is True
    (run,) = (tmp_path / "runs").iterdir()
    return shown, [json.loads(s) for s in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_t23_the_tool_is_called_beside_training_within_the_bound(rlvr, tmp_path, cache_dir):
    settings = {"train.max_staleness": 2, "train.steps": 5, "train.warmup_steps": 1}
    more = {"train.in_flight": "keep", "eval.tasks": "[]"}
    _, metrics = beside_training(rlvr, tmp_path, cache_dir, **settings, **more)
    assert len(metrics) == 5
    assert 0 < max(line["staleness/max"] for line in metrics) <= 2
    assert all(line["turns/mean"] > 1 for line in metrics)


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("RLVR_TEST_ALL") != "1", reason="long: make test-all runs it")
@pytest.mark.parametrize(("staleness", "in_flight"), [(1, "drain"), (2, "keep")])
def test_a_tiny_model_learns_to_call_a_tool_beside_training(
    rlvr, tmp_path, cache_dir, staleness, in_flight
):
    settings = {"train.max_staleness": staleness, "train.in_flight": in_flight}
    shown, _ = beside_training(rlvr, tmp_path, cache_dir, **settings)
    assert shown["heldout"]["before"] <= 0.3
    assert shown["heldout"]["after"] >= 0.8
