"""A sweep of real runs that is killed with -9 in the middle, and finished by a second call."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
import yaml

from rlvr_core.record.view import RunView
from rlvr_core.testing.random_model import save_random_model

STEPS = 20


@pytest.fixture
def command(write, tmp_path):
    """The command, in a folder with data and two models of three that a sweep names."""
    rows = [{"id": f"p{i}", "question": f"Say {i}.", "answer": "x"} for i in range(8)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    save_random_model(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "other")
    path = write(parameters={"model.path": ["model", "nowhere", "other"]})
    base = yaml.safe_load((tmp_path / "base.yaml").read_text())
    base["train"]["steps"] = STEPS
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    return [sys.executable, "-m", "rlvr_core.cli.main", "sweep", str(path)]


def run_of(tmp_path, trial):
    found = list((tmp_path / f"sweeps/tries/trial{trial:03d}/seed5").glob("tries-*"))
    return found[0] if len(found) == 1 else None


def wait_for(condition):
    until = time.monotonic() + 300
    while not (found := condition()):
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.02)
    return found


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_was(command, tmp_path):
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    first = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    wait_for(
        lambda: (
            (folder := run_of(tmp_path, 2))
            and (folder / "checkpoints/step000004/COMPLETE").exists()
        )
    )
    (child,) = psutil.Process(first.pid).children()
    first.send_signal(signal.SIGKILL)
    first.communicate()
    wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)

    done, half = RunView(run_of(tmp_path, 0)), RunView(run_of(tmp_path, 2))
    assert (done.outcome, half.outcome) == ("finished", "interrupted")
    assert 0 < half.steps < STEPS
    written = (done.path / "run.json").stat().st_mtime_ns

    second = subprocess.run(
        [*command, "--json"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert second.returncode == 1, second.stderr  # for the trial without a model
    assert "trial 0" not in second.stderr
    assert "trial 2 seed 5: goes on" in second.stderr
    assert (done.path / "run.json").stat().st_mtime_ns == written
    whole = RunView(run_of(tmp_path, 2))
    assert (whole.outcome, whole.steps) == ("finished", STEPS)
    assert len(whole.manifest["resumed"]) == 1
    # the two models are one, and so are the runs: the kill has changed nothing
    assert whole.metrics.rows == RunView(run_of(tmp_path, 0)).metrics.rows

    told = {load["trial"]: load for load in json.loads(second.stdout)["trials"]}
    assert [told[n]["status"] for n in range(3)] == ["finished", "failed", "finished"]
    assert "nowhere" in told[1]["runs"][0]["error"]
    last = [row["reward/mean"] for row in whole.metrics.rows[-10:]]
    assert told[2]["estimate"]["value"] == pytest.approx(sum(last) / 10)
    assert "<html" in (tmp_path / "sweeps/tries/report.html").read_text()[:500]
