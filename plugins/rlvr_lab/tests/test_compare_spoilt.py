"""Evaluations that failed for answers that were cut off are not compared in silence."""

import json


def test_a_spoilt_evaluation_is_refused_until_it_is_accepted(lab, model_dir, other_model):
    """Two tokens are too few for any answer: every one of the 24 is cut off."""
    short = ("--task", "toy/letters", "--with", "max_tokens=2")
    lab.rlvr("eval", model_dir, *short, "--out", "a", check=1)
    assert json.loads((lab.folder / "a/toy_letters/summary.json").read_text())["spoilt"] is True
    lab.rlvr("eval", other_model, *short, "--out", "b", "--allow-truncation")

    for pair in (("a", "b"), ("b", "a"), ("a", "a")):
        refused = lab.rlvr("compare", *pair, check=2)
        assert refused.stdout == ""
        assert "spoilt: 100.0% of its answers were cut off at 2 tokens" in refused.stderr
        assert "max_tokens" in refused.stderr
        assert "--allow-truncation" in refused.stderr
        lab.rlvr("compare", *pair, "--json", check=2)
    (lab.folder / "a/toy_letters/summary.json").unlink()  # killed before its summary
    lab.rlvr("compare", "a", "b", check=2)

    lab.rlvr("eval", model_dir, *short, "--out", "a", "--allow-truncation")
    assert "cut off at the token cap, before and after: 100.0% and 100.0%" in (
        lab.rlvr("compare", "a", "b").stdout
    )
    assert lab.json("compare", "a", "b")["tasks"][0]["truncated"] == [1.0, 1.0]
