"""``traces/gaps.jsonl``: by how much trainer and engine differ on each token."""

import base64
import hashlib
import json

import numpy as np
import pytest


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def key(group, completion):
    """As docs/runs.md says it."""
    text = json.dumps([group["prompt_ids"], completion["token_ids"]])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@pytest.mark.parametrize("train", [{}, {"mini_batches": 2, "num_iterations": 2}])
def test_every_trained_token_has_its_gap_and_their_mean_is_the_metric(lab, train):
    """In bfloat16, where there is a gap at all; the metric is computed by the loss."""
    steps = {"steps": 3, "lr": 1e-3, "warmup_steps": 1, **train}
    run = lab.run(train=steps, model={"path": str(lab.model), "dtype": "bfloat16"})
    metrics = lines(run / "metrics.jsonl")
    recorded = {line["step"]: line["gaps"] for line in lines(run / "traces" / "gaps.jsonl")}
    trained = 0
    for step, gaps in recorded.items():
        found = {}
        for group in lines(run / "traces" / "rollouts.jsonl"):
            for one in group["completions"]:
                if group["step"] == step and one["fate"] == "trained":
                    values = np.frombuffer(base64.b64decode(gaps[key(group, one)]), "<f2")
                    assert np.isfinite(values).tolist() == [bool(kept) for kept in one["loss_mask"]]
                    found.setdefault(key(group, one), []).append(values.astype(float))
        assert found.keys() == gaps.keys()
        trained += len(found)
        alike = np.concatenate([values for same in found.values() for values in same])
        mean = np.nanmean(np.abs(alike))
        assert mean > 1e-5
        if not train:  # of several iterations the metric is the mean of all
            assert metrics[step]["mismatch/abs_mean"] == pytest.approx(mean, rel=2e-3)
    assert trained > 10


def test_nothing_is_recorded_where_it_is_turned_off(lab):
    run = lab.run(guards={"parity": {"record": False}})
    assert not (run / "traces" / "gaps.jsonl").exists()
