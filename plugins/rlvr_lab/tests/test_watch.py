import json
import os
import subprocess
import sys
import time

import pytest

from rlvr_core.api import ConfigError, RunError
from rlvr_core.record.checkpoints import _seal
from rlvr_core.record.manifest import _process
from rlvr_core.record.rundir import RunFolder
from rlvr_lab.watch import Watcher

ACCURACY = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 4, "method": "wilson"}
SUMMARY = {
    "tasks": {
        "toy/letters": {
            "metrics": {"accuracy": ACCURACY},
            "task_metrics": {},
            "spoilt": False,
        }
    }
}
FAILS_ONCE = """
import pathlib, sys
out = pathlib.Path(sys.argv[1])
if not out.exists():
    out.mkdir(); sys.exit("no luck")
(out / "new").write_text(sys.argv[2])
(out / "new").rename(out / "summary.json")
"""


def test_t79_t83_what_failed_is_tried_again_and_the_table_has_a_row_of_each_step(lab, model_dir):
    run = lab.run(model_dir)
    (run / "checkpoints" / "step000003").mkdir()  # no COMPLETE: still being written
    said = []
    runs = [RunFolder(run)]
    asked = []

    def command(job):
        asked.append(job.step)
        return [sys.executable, "-c", FAILS_ONCE, str(job.out), json.dumps(SUMMARY)]

    out = lab.folder / "out"
    watcher = Watcher(runs, out, command, [None], said.append)
    watcher.watch(0.02)
    assert sorted(asked) == [1, 1, 2, 2]
    assert "failed (exit 1)" in said[1]
    assert "no luck" in (out / run.name / "step000001.log").read_text()
    rows = json.loads((out / "table.json").read_text())
    assert [(row["run"], row["step"], row["metric"], row["value"]) for row in rows] == [
        (run.name, 1, "accuracy", 0.5),
        (run.name, 2, "accuracy", 0.5),
    ]
    first, second, _ = (out / "table.csv").read_text().splitlines()
    assert first == "run,step,task,metric,value,low,high,n,spoilt"
    assert second == f"{run.name},1,toy/letters,accuracy,0.5,0.25,0.75,4,False"

    # another watcher has nothing to do; one that never succeeds gives up and says so
    Watcher(runs, out, command, [None], said.append).watch(0.02)
    assert len(asked) == 4

    def never(job):
        return [sys.executable, "-c", "raise SystemExit('never')"]

    with pytest.raises(RunError, match="could not be evaluated: never"):
        Watcher(runs, lab.folder / "never", never, [None, "0"], said.append).watch(0.02)


def fake_run(folder, outcome="finished", steps=(1,)):
    """A run folder with complete checkpoints that hold nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    for step in steps:
        path = folder / "checkpoints" / f"step{step:06d}"
        path.mkdir(parents=True)
        (path / "weights").write_text("w")
        _seal(path, step, {})
    (folder / "run.json").write_text(json.dumps({"outcome": outcome, "process": _process()}))
    return folder


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("file://elsewhere/runs", "names the machine 'elsewhere'"),
        ("nothing", "there is no run 'nothing'"),
        ("runs/nothing", "there is no run folder 'runs/nothing'"),
    ],
)
def test_what_is_no_run_is_refused(lab, text, words):
    fake_run(lab.folder / "runs" / "a-20260101-000000")
    done = lab.rlvr("watch", text, "--task", "letters", check=2)
    assert words in done.stderr
    assert not (lab.folder / "evals").exists()


def test_two_runs_of_one_name_and_bad_options_are_refused(lab, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", lab.env()["PYTHONPATH"])
    for root in ("one", "two"):
        fake_run(lab.folder / root / "a-20260101-000000", steps=())
    task = ("--task", "letters")
    a = "one/a-20260101-000000"
    done = lab.rlvr("watch", a, "two/a-20260101-000000", *task, check=2)
    assert "have the same name" in done.stderr
    lab.rlvr("watch", a, *task)
    assert "run | step | task" in (lab.folder / "evals" / "watch" / "table.md").read_text()
    wrong = lab.rlvr("watch", a, "--task", "leters", check=2)
    assert "did you mean: toy/letters" in wrong.stderr
    odd = lab.rlvr("watch", a, *task, "--devices", "0,,1", "--out", "odd", check=2)
    assert "no list of devices" in odd.stderr


def test_what_would_fail_again_is_not_tried_again(tmp_path):
    run = fake_run(tmp_path / "a-20260101-000000")
    asked = []

    def command(job):
        asked.append(job.step)
        return [sys.executable, "-c", "import sys; print('error: no such task'); sys.exit(2)"]

    out, said = tmp_path / "out", []
    watcher = Watcher([RunFolder(run)], out, command, [None], said.append)
    with pytest.raises(RunError, match="could not be evaluated: error: no such task"):
        watcher.watch(0.02)
    assert asked == [1]
    assert "error: no such task" in said[1]


@pytest.mark.slow
def test_a_run_is_followed_while_it_goes_on_and_the_watcher_ends_with_it(
    lab, model_dir, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", lab.env()["PYTHONPATH"])
    lab.write_run_config(model_dir, checkpoint={"every": 1, "keep": 9})
    with subprocess.Popen(
        lab.command("run", "config.yaml", "--display", "none"), cwd=lab.folder, env=os.environ
    ) as process:
        deadline = time.monotonic() + 60
        while not list(lab.folder.glob("runs/*/run.json")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        limits = ("--set", "limit=5", "--set", "max_truncated=1")
        done = lab.rlvr("watch", "last", "--task", "letters", *limits, "--poll", "0.2")
    (run,) = (lab.folder / "runs").iterdir()
    rows = json.loads((lab.folder / "evals" / "watch" / "table.json").read_text())
    accuracy = [row for row in rows if row["metric"] == "accuracy"]
    assert [row["step"] for row in accuracy] == [1, 2]
    for row in accuracy:
        folder = lab.folder / "evals" / "watch" / run.name / f"step{row['step']:06d}"
        results = (folder / "toy_letters" / "results.jsonl").read_text().splitlines()
        passed = [json.loads(line)["passed"] for line in results]
        assert row["value"] == pytest.approx(sum(passed) / 5)
        assert row["n"] == 5
    assert "| toy/letters | accuracy |" in done.stdout


def test_devices_are_places_within_those_that_the_watcher_was_given(monkeypatch):
    from rlvr_lab.commands.watch import _devices

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert _devices("2, 3") == ["6", "7"]
    with pytest.raises(ConfigError, match="GPU 6 was asked for, and this run was given 4"):
        _devices("6")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert _devices("6,7") == ["6", "7"]
    assert _devices(None) == [None]
