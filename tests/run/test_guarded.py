"""What a review found: runs that would have gone wrong in silence."""

import json
import re

import pytest

from tests.support.run_records import lines


def test_a_reward_of_weight_zero_is_refused(lab):
    lab.write(rewards=[{"use": "toy/early", "weight": 0}])
    assert "weight 0" in lab.rlvr("run", "config.yaml", check=2).stderr
    assert lab.runs() == []


EXACT = [{"use": "core/exact"}]  # the random model never says "x" alone


def test_a_run_that_changed_nothing_says_so(lab):
    run = lab.run(rewards=EXACT, guards=[{"use": "core/idle", "off": True}])
    metrics = lines(run / "metrics.jsonl")
    assert {line["rows"] for line in metrics} == {0}
    assert "idle/steps" not in metrics[0]
    notes = json.loads(lab.rlvr("show", "last", "--json").stdout)["notes"]
    assert any("no update" in note for note in notes)


def test_a_run_that_cannot_learn_ends_with_its_own_exit_code(lab):
    lab.write(rewards=EXACT, guards=[{"use": "core/idle", "with": {"max_steps": 3}}])
    done = lab.rlvr("run", "config.yaml", check=6)
    assert "no weight has changed in 3 steps: no completion passed" in done.stderr
    run = lab.runs()[-1]
    assert json.loads((run / "run.json").read_text())["outcome"] == "failed"
    assert [line["idle/steps"] for line in lines(run / "metrics.jsonl")] == [0, 1, 2]


def test_a_run_goes_on_neither_with_other_options_nor_to_fewer_steps_nor_over_other_data(lab):
    run = lab.run()
    lab.write(sampling={"n": 2, "max_tokens": 12})
    done = lab.rlvr("run", "config.yaml", "--resume", "last", check=2)
    assert "sampling.n is 2 here and 4 in the run" in done.stderr
    assert "leave sampling.n as in the run, and the resumption goes on" in done.stderr
    done = lab.rlvr("run", "--resume", str(run), "--set", "train.steps=3", check=2)
    assert "already taken 4" in done.stderr
    rows = (lab.folder / "data.jsonl").read_text()
    (lab.folder / "data.jsonl").write_text(rows.replace("Say 7.", "Say 8."))
    done = lab.rlvr("run", "--resume", str(run), "--set", "train.steps=6", check=2)
    assert "data are not those" in done.stderr
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
    assert lines(run / "metrics.jsonl")[0]["parity/k3"] < 1e-7
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
