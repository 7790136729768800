"""A verifier of weight 0 judges, and changes nothing."""

import pytest

from rlvr_core.record.jsonl import read_jsonl


def test_a_shadow_verifier_is_compared_and_pays_nothing(lab):
    shadow = {"use": "core/exact", "weight": 0.0}
    watching = {"use": "checks/degenerate", "weight": 0.0}
    guards = ["guards/shadow"]
    run = lab.run(rewards=["auto", shadow, watching], guards=guards, train={"steps": 2, "lr": 1e-3})
    lines = list(read_jsonl(run / "metrics.jsonl"))
    groups = list(read_jsonl(run / "traces" / "rollouts.jsonl"))
    assert len(lines) == 2
    for line in lines:
        seen = [
            one for group in groups if group["step"] == line["step"] for one in group["completions"]
        ]
        assert all(one["reward"] == one["verdicts"]["toy/early"]["score"] for one in seen)
        ordinary = [one["verdicts"]["checks/degenerate"]["score"] == 1.0 for one in seen]
        exact = [one["verdicts"]["core/exact"]["score"] == 1.0 for one in seen]
        differ = [one["passed"] != same for one, same in zip(seen, exact, strict=True)]
        name = "shadow/disagreement/core/exact"
        assert line[name] == pytest.approx(sum(differ) / len(differ))
        # it says nothing of what is right
        assert "shadow/disagreement/checks/degenerate" not in line
        assert line["reward/checks/degenerate"] == pytest.approx(sum(ordinary) / len(ordinary))
