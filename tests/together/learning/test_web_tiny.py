"""A tiny model learns a task of several turns whose tool is the sandbox: write a program that reads
the page, read what it prints, answer."""

import os
from itertools import chain

import pytest

pytest.importorskip("rlvr_bs4")


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get("RLVR_TEST_ALL"), reason="takes minutes: make test-all (RLVR_TEST_ALL=1)"
)
def test_a_tiny_model_learns_to_have_a_program_read_a_page(learns, trained_groups, tmp_path):
    """A seed that was not used to find the recipe."""
    cache = tmp_path / "cache"
    run = learns("web-tiny.yaml", "bs4/tiny", seed=23, cache=cache, before=0.3, after=0.8)
    groups = trained_groups(run)
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
