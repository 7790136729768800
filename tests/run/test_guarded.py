"""What a review found: runs that would have gone wrong in silence."""

import json
import re

import pytest


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_reward_of_weight_zero_is_refused(lab):
    lab.write(rewards=[{"use": "toy/early", "weight": 0}])
    assert "weight 0" in lab.rlvr("run", "config.yaml", check=2).stderr
    assert lab.runs() == []


def test_a_run_that_changed_nothing_says_so(lab):
    run = lab.run(rewards=[{"use": "core/exact"}])  # the random model never says "x" alone
    assert {line["rows"] for line in _lines(run / "metrics.jsonl")} == {0}
    notes = json.loads(lab.rlvr("show", "last", "--json").stdout)["notes"]
    assert any("no update" in note for note in notes)


def test_resuming_over_changed_data_is_refused(lab):
    run = lab.run()
    rows = (lab.folder / "data.jsonl").read_text()
    (lab.folder / "data.jsonl").write_text(rows.replace("Say 7.", "Say 8."))
    done = lab.rlvr("run", "--resume", str(run), "--set", "train.steps=6", check=2)
    assert "data are not those" in done.stderr
    assert json.loads((run / "run.json").read_text())["outcome"] == "finished"


def test_resuming_to_fewer_steps_is_refused(lab):
    run = lab.run()
    done = lab.rlvr("run", "--resume", str(run), "--set", "train.steps=3", check=2)
    assert "already taken 4" in done.stderr
    assert json.loads((run / "run.json").read_text())["outcome"] == "finished"


def _scripted(**options):
    answers = {"": ["abc", "xyz", "mno", "aaa"]}
    return {"use": "scripted", "with": {"answers": answers, "logprob": None} | options}


def test_t20_an_aborted_completion_is_no_answer(lab):
    lab.write(engine=_scripted(abort=[2]))
    done = lab.rlvr("run", "config.yaml", check=1)
    assert "ended by 'abort'" in done.stderr
    record = json.loads((lab.runs()[-1] / "run.json").read_text())
    assert record["outcome"] == "failed"
    trace = record["traceback"].splitlines()
    assert trace[0] == "Traceback (most recent call last):"
    assert any(re.search(r'rollout/collect.py", line \d+, in _completion$', one) for one in trace)
    assert record["error"].splitlines()[0] in record["traceback"]


def test_parity_stops_an_engine_that_makes_its_log_probs_up(lab):
    run = lab.run(engine=_scripted())  # exact log-probs pass
    assert _lines(run / "metrics.jsonl")[0]["parity/max"] < 1e-4
    lab.write(engine=_scripted(logprob=-1.0))
    done = lab.rlvr("run", "config.yaml", check=1)
    assert "guard parity" in done.stderr
    assert not (lab.runs()[-1] / "metrics.jsonl").read_text()


def test_short_runs_get_a_short_warm_up():
    from rlvr_core.config.model import TrainSection

    assert TrainSection(steps=5).warmup_steps == 0
    assert TrainSection(steps=100).warmup_steps == 10
    assert TrainSection(steps=1000).warmup_steps == 30
    with pytest.raises(ValueError, match="warmup_steps"):
        TrainSection(steps=30, warmup_steps=30)


def test_t5_a_run_that_collapses_is_stopped_and_its_checkpoints_remember(lab):
    guard = {"use": "core/collapse", "with": {"window": 1, "max_drop": 0.0}}
    train = {**lab.config["train"], "steps": 40}
    lab.write(guards={"use": [guard]}, train=train, checkpoint={"every": 1})
    done = lab.rlvr("run", "config.yaml", check=1)
    assert "guard collapse: averaged over 1 steps" in done.stderr
    run = lab.runs()[-1]
    assert json.loads((run / "run.json").read_text())["outcome"] == "failed"
    rewards = [line["reward/mean"] for line in _lines(run / "metrics.jsonl")]
    assert rewards[-1] < max(rewards)
    assert rewards[:-1] == sorted(rewards[:-1])
    saved = json.loads(max(run.glob("checkpoints/step*/trainer/state.json")).read_text())
    (remembered,) = saved["guards"].values()
    assert remembered["reward"]["best"] == max(rewards[: saved["step"]])
