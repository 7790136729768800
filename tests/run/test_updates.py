"""Whole runs with several optimizer updates a step: versions, records, staleness, resumption."""

import pytest

from tests.support.run_records import balanced, digest, killed_and_resumed, lines

FOUR = {"steps": 6, "lr": 2e-3, "warmup_steps": 1, "mini_batches": 2, "num_iterations": 2}
HELD = {
    "use": "dapo",
    "with": {
        "beta": 0.01,
        "entropy_bonus": 0.01,
        "entropy_control": {"target": 9.0, "step": 0.001},
    },
}


@pytest.mark.slow
def test_versions_are_updates_and_completions_are_trained_once(lab):
    lab.write(train=FOUR)
    told = lab.rlvr("run", "config.yaml").stderr
    assert "updates: 4 a step, 2 mini-batches x 2 iterations" in told
    run = lab.runs()[-1]
    metrics = lines(run / "metrics.jsonl")
    applied = [line.get("updates/applied", 0) for line in metrics]
    assert [line["version"] for line in metrics] == [sum(applied[:i]) for i in range(6)]
    assert max(applied) == 4
    missing = [line["updates/missing"] for line in metrics]
    assert [one + two for one, two in zip(applied, missing, strict=True)] == [4] * 6
    assert told.count(" of 4 updates: too few groups") == sum(map(bool, missing))
    for line in metrics:
        assert line["ledger/trained"] == 4 * line["groups/kept"]
        if line["groups/kept"]:
            assert line["rows/read"] == 2 * line["rows"]
            assert line["iteration/1/ratio/max"] > 1
    balanced(lab, lab.runs()[-1])
    first = next(version for version in (line["version"] for line in metrics) if version)
    assert first > 1


@pytest.mark.slow
def test_t94_killed_between_steps_of_four_updates_a_run_resumes_bit_for_bit(lab):
    """With a reference that moves within steps, and groups that are read again in the next."""
    sampler = {"use": "shuffle", "with": {"max_reads": 2}}
    train = FOUR | {"reference": {"sync_every": 3, "ema": 0.5}}
    sections = {
        "train": train, "loss": HELD, "sampler": sampler, "checkpoint": {"every": 1, "keep": 9}
    }  # fmt: skip
    straight = lab.run(**sections)
    resumed = killed_and_resumed(lab)
    assert resumed != straight
    assert len(digest(straight)) == 5
    assert digest(resumed) == digest(straight)
    metrics = lines(straight / "metrics.jsonl")
    assert sum(line["groups/replayed"] for line in metrics) >= 4
    assert {line["reference/version"] % 3 for line in metrics} == {0}
    assert metrics[-1]["reference/version"] > metrics[1]["reference/version"]
    balanced(lab, lab.runs()[-1])
    # each update that was applied moves the entropy bonus
    applied = sum(line["updates/applied"] for line in metrics)
    assert metrics[-1]["entropy/coefficient"] == pytest.approx(0.01 + 0.001 * applied)
