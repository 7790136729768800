"""A tiny model learns a task of several turns whose tool is the sandbox: write a program that reads
the page, read what it prints, answer."""

import json
import os
from itertools import chain
from pathlib import Path

import pytest

pytest.importorskip("rlvr_bs4")
CONFIG = Path(__file__).parents[2] / "examples" / "web-tiny.yaml"


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get("RLVR_TEST_ALL"), reason="takes minutes: make test-all (RLVR_TEST_ALL=1)"
)
def test_a_tiny_model_learns_to_have_a_program_read_a_page(rlvr, tmp_path):
    """A seed that was not used to find the recipe."""
    options = ["--set", "run.seed=23", "--set", "model.path=tiny:bs4/tiny?seed=23"]
    cache = tmp_path / "cache"
    rlvr("run", CONFIG, "--display", "none", *options, cwd=tmp_path, cache=cache, timeout=None)
    shown = json.loads(rlvr("show", "last", "--json", cwd=tmp_path, cache=cache))
    assert shown["heldout"]["before"] <= 0.3
    assert shown["heldout"]["after"] >= 0.8
    assert shown["ledger"]["balanced"] is True
    assert shown["parity"]["max"] < 1e-3

    (run,) = (tmp_path / "runs").iterdir()
    groups = [json.loads(s) for s in (run / "traces" / "rollouts.jsonl").read_text().splitlines()]
    rows = [row for group in groups for row in group["completions"]]
    right = [row for row in rows if row["passed"]]
    assert len(right) > len(rows) / 3
    for row in right:
        turns = row["transcript"]["turns"]
        roles = [turn["role"] for turn in turns]  # a turn may call the tool more than once
        assert roles[:2] == ["assistant", "tool"]
        assert roles[-1] == "assistant"
        assert "make_soup()" in turns[0]["text"]
        tokens = [turn["n_tokens"] for turn in turns]
        mask = [
            [int(turn["role"] == "assistant")] * n for turn, n in zip(turns, tokens, strict=True)
        ]
        assert row["loss_mask"] == [*chain.from_iterable(mask)]
        (verdict,) = row["verdicts"].values()
        assert verdict["parts"]["looked"] == 1.0, "the sandbox saw the page being read"
    told = {turn["text"] for row in right for turn in row["transcript"]["turns"][1:2]}
    assert len(told) > 50, "the pages differ"
    assert not {g["problem_id"] for g in groups} & {
        json.loads(line)["problem_id"]
        for path in (run / "evals").glob("bs4-tiny*.jsonl")
        for line in path.read_text().splitlines()
    }
