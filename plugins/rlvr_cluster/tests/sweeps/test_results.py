"""What is read back of a sweep's folders: states, the table worked out by hand, what is next."""

import json
import subprocess
import sys

import pytest

from rlvr_cluster.sweeps.processes import shares
from rlvr_cluster.sweeps.spec import read_sweep
from rlvr_cluster.sweeps.state import is_done, note_fault, result_of, state_of
from rlvr_cluster.sweeps.sweep import CheckedSweep
from rlvr_cluster.sweeps.table import as_json, best_first, row
from rlvr_cluster.sweeps.trials import make_trials
from rlvr_core.api import ConfigError, RunError

LR = {"parameters": {"train.lr": [1e-3, 1e-4]}}


@pytest.fixture
def read(write, host):
    def reading(**keys):
        sweep = read_sweep(write(**keys))
        return sweep, make_trials(sweep, host)

    return reading


def results_of(trials, host):
    from rlvr_core.stats.estimates import estimate

    return [result_of(trial, "reward/mean", estimate) for trial in trials]


def test_the_table_by_hand(read, record, host):
    sweep, trials = read(seeds=3, **LR)
    # a metric of training is the mean of its last 10 steps: 2, 3 and 4
    for run, level in zip(trials[1].runs, (2.0, 3.0, 4.0), strict=True):
        record(run, [100.0, 100.0, *[level - 1] * 5, *[level + 1] * 5])
    record(trials[0].runs[0], [1.5] * 10)
    record(trials[0].runs[1], [9.0], "failed", "RunError: it broke")
    results = best_first(results_of(trials, host), "maximize")
    assert [result.trial.number for result in results] == [1, 0]
    # mean 3, deviation 1, t of 2 degrees 4.302653: 3 -+ 4.302653 / sqrt(3) = 2.484
    assert row(["train.lr"], results[0]) == (
        "1", "0.0001", "3.000", "0.516 to 5.484", "3", "finished",
    )  # fmt: skip
    # one seed outside 0 to 1 says nothing of the spread
    assert row(["train.lr"], results[1]) == ("0", "0.001", "1.500", "", "1", "failed, 1/3")
    assert results[1].states[1].error == "RunError: it broke"
    data = as_json(sweep, results, "report.html")
    assert data["trials"][0]["parameters"] == {"train.lr": 1e-4}
    assert data["trials"][0]["estimate"]["low"] == pytest.approx(3 - 2.48414, abs=1e-4)
    assert [run["status"] for run in data["trials"][1]["runs"]] == [
        "finished",
        "failed",
        "waiting",
    ]
    assert json.loads(json.dumps(data)) == data


def test_the_smallest_is_best_where_it_should_fall_and_none_is_last(read, record, host):
    _, trials = read(parameters={"train.lr": [1, 2, 3, 4]})
    for trial, value in zip(trials, (3.0, None, 2.0, 3.0), strict=True):
        if value is not None:
            record(trial.runs[0], [value])
    order = best_first(results_of(trials, host), "minimize")
    assert [result.trial.number for result in order] == [2, 0, 3, 1]


def test_what_has_finished_is_not_next_and_what_failed_is(read, record):
    _, trials = read(seeds=2, **LR)
    record(trials[0].runs[0], [1.0])
    record(trials[0].runs[1], [1.0], "interrupted")
    record(trials[1].runs[0], [1.0], "failed", "x")
    left = [(run.trial, run.seed) for trial in trials for run in trial.runs if not is_done(run)]
    assert left == [(0, 6), (1, 5), (1, 6)]


def test_a_run_that_never_began_says_why(read):
    _, trials = read(**LR)
    run = trials[0].runs[0]
    assert state_of(run, "reward/mean").status == "waiting"
    run.prepare()
    run.log.write_text("error: old\nerror: there is no model\n  at model.path\n")
    note_fault(run, 4)
    state = state_of(run, "reward/mean")
    assert (state.status, state.error) == ("failed", "there is no model at model.path")
    note_fault(run, -9)
    assert "SIGKILL" in state_of(run, "reward/mean").error


def test_a_run_without_the_metric_is_no_success(read, record):
    _, trials = read(metric="pass_rate", **LR)
    record(trials[0].runs[0], [1.0])
    state = state_of(trials[0].runs[0], "pass_rate")
    assert state.status == "failed"
    assert "reward/mean" in state.error


def test_a_folder_with_trials_of_another_config_is_refused(read, write, host):
    _, trials = read(**LR)
    trials[1].runs[0].prepare()
    assert read(**LR)
    # more trials are no other trials
    assert len(read(parameters={"train.lr": [1e-3, 1e-4, 1e-5]})[1]) == 3
    with pytest.raises(ConfigError) as caught:
        read(parameters={"train.lr": [1e-3, 2e-4]})
    assert "train.lr is 0.0001 there and 0.0002 now" in str(caught.value)
    assert "another name" in str(caught.value)


HOLD = """
import sys
from rlvr_core.record.files import lock_folder
lock_folder(__import__("pathlib").Path(sys.argv[1]), "")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_sweep_in_the_folder_is_refused(write, tmp_path):
    checked = CheckedSweep.read(write(**LR), None)
    checked.sweep.folder.mkdir(parents=True)
    command = [sys.executable, "-c", HOLD, str(checked.sweep.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(RunError) as caught:
            checked.run(1, print)
        other.stdin.close()
    assert "another rlvr sweep is running there" in str(caught.value)
    assert not (checked.sweep.folder / "trial000").exists()


def test_gpus_are_shared_out():
    assert shares([], 2) == [None, None]
    assert shares(["0", "1", "2", "3"], 2) == ["0,1", "2,3"]
    assert shares(["0", "1", "2"], 2) == ["0", "1"]
    assert shares(["GPU-a", "GPU-b"], 3) == ["GPU-a", "GPU-b", "GPU-a"]


def test_one_trial_alone_and_one_that_is_not_there(write):
    path = write(**LR)
    assert [trial.number for trial in CheckedSweep.read(path, 1).trials] == [1]
    with pytest.raises(ConfigError, match="0 to 1"):
        CheckedSweep.read(path, 2)
