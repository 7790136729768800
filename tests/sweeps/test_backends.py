"""Sweeps on Slurm and on a Ray cluster: real ones in slow tests, and what is refused before."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from rlvr_core.api import ConfigError, MachineError, RlvrError, RunError
from rlvr_core.builtin.sweeps.slurm import check_options, queued
from rlvr_core.builtin.sweeps.sweep import Carried
from rlvr_core.testing.random_model import save_random_model

LR = {"parameters": {"train.lr": [1e-3, 1e-4]}}
FAKE = """#!{python}
import json, os, sys
name = os.path.basename(sys.argv[0])
text = sys.stdin.read() if name == "sbatch" else ""
with open({log!r}, "a") as file:
    file.write(json.dumps([name, sys.argv[1:], text]) + "\\n")
answers = json.load(open({answers!r}))
left = answers.get(name) or [[0, ""]]
if len(left) > 1:
    json.dump(answers | {{name: left[1:]}}, open({answers!r}, "w"))
print(left[0][1], file=sys.stderr if left[0][0] else sys.stdout)
sys.exit(left[0][0])
"""


class Scheduler:
    """Commands that write down what they are asked, and answer as they are told to, in turn."""

    def __init__(self, folder):
        self.log, self.answers = folder / "asked.jsonl", folder / "answers.json"
        text = FAKE.format(python=sys.executable, log=str(self.log), answers=str(self.answers))
        (folder / "bin").mkdir()
        for name in ("sbatch", "squeue", "scancel"):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)

    def says(self, **answers):
        self.answers.write_text(json.dumps(answers))

    def asked(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def scheduler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return Scheduler(tmp_path)


def test_an_array_and_a_job_after_it_are_submitted(write, record, scheduler, tmp_path):
    carried = Carried.read(write(**LR), None)
    record(carried.trials[0].runs[0], [1.0])
    scheduler.says(sbatch=[[0, "71"], [0, "72;main"]])
    jobs = carried.submit(2, ["--gpus=1", "--partition=big"])
    assert (jobs.array, jobs.table) == ("71", "72")
    (_, first, array), (_, second, table) = scheduler.asked()
    assert first == ["--parsable", "--gpus=1", "--partition=big"]
    # the table needs no GPU, and comes whether or not tasks fail
    assert second == ["--parsable", "--partition=big", "--dependency=afterany:71"]
    assert "--array=1\n" in array  # trial 0 has finished
    assert '--trial "$SLURM_ARRAY_TASK_ID" --parallel 2' in array
    assert table.rstrip().endswith("sweep.yaml --collect")
    for script in (array, table):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)

    scheduler.says(squeue=[[0, "71 RUNNING\n71 PENDING\n72 PENDING"]])
    assert carried.queue() == "slurm job 71: 1 running, 1 pending; table: job 72"
    with pytest.raises(RunError, match="in the queue already, as job 71"):
        carried.submit(1, [])
    scheduler.says(squeue=[[1, "Invalid job id specified"]], sbatch=[[0, "81"], [0, "82"]])
    assert carried.queue() is None
    assert carried.submit(1, []).array == "81"


def test_what_slurm_refuses_leaves_nothing_in_the_queue_or_on_disk(write, scheduler):
    carried = Carried.read(write(**LR), None)
    scheduler.says(sbatch=[[1, "sbatch: error: invalid partition"]])
    with pytest.raises(MachineError, match="invalid partition"):
        carried.submit(1, ["--partition=none"])
    assert not carried.sweep.folder.exists()
    scheduler.says(sbatch=[[0, "9"], [1, "no more jobs"]])
    with pytest.raises(MachineError, match="no more jobs"):
        carried.submit(1, [])
    assert scheduler.asked()[-1][:2] == ["scancel", ["9"]]
    assert queued(carried.sweep) is None


@pytest.mark.parametrize(
    ("one", "words"),
    [("-pmain", "long form"), ("--gpus 1", "long form"), ("--array=1-2", "sets --array")],
)
def test_options_that_cannot_be_passed_on(one, words):
    with pytest.raises(ConfigError, match=words):
        check_options([one])
    check_options(["--gpus=1", "--exclusive", "--constraint=a100&big"])


def test_a_misspelt_metric_of_an_evaluation_is_refused_with_names_like_it(monkeypatch, tmp_path):
    root = Path(__file__).parents[2]
    given = yaml.safe_load((root / "examples/sweep.yaml").read_text())
    given["config"] = str(root / "examples/sweep-base.yaml")
    given["metric"] = "arithmetic-heldout:acuracy"
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(given, sort_keys=False))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RlvrError) as caught:
        Carried.read(Path("sweep.yaml"), None)
    (complaint,) = caught.value.complaints  # once, though there are four trials
    assert complaint.what == "task 'math/arithmetic-heldout' has no metric 'acuracy'"
    assert complaint.where.startswith("sweep.yaml:")
    assert complaint.remedy[0] == "did you mean: accuracy?"
    assert not (tmp_path / "sweeps").exists()


@pytest.fixture
def command(write, tmp_path):
    """The command, in a folder with data and a model; two trials."""
    rows = [{"id": f"p{i}", "question": f"Say {i}.", "answer": "x"} for i in range(8)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    save_random_model(tmp_path / "model")
    path = write(**LR)
    return [sys.executable, "-m", "rlvr_core.cli.main", "sweep", path.name]


def rlvr(command, *more, **kinds):
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [*command, *more],
        env=env,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        **kinds,
    )


def wait_for(condition):
    until = time.monotonic() + 400
    while not (found := condition()):
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.1)
    return found


def controlled():
    """Whether a Slurm controller answers here."""
    if shutil.which("scontrol") is None:
        return False
    done = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, check=False)
    return done.returncode == 0 and "UP" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not controlled(), reason="needs Slurm: sbatch, and a controller that answers")
def test_on_a_real_slurm(command, tmp_path):
    done = rlvr(command, "--backend", "slurm", "--sbatch", "--time=00:20:00", "--json")
    assert done.returncode == 0, done.stderr
    jobs = json.loads(done.stdout)
    again = rlvr(command, "--backend", "slurm")
    assert again.returncode == 1
    assert f"as job {jobs['array']}" in again.stderr
    report = tmp_path / "sweeps/tries/report.html"
    wait_for(report.exists)
    table = wait_for(lambda: (tmp_path / "sweeps/tries/table.txt").read_text().split("report:")[1:])
    assert table
    told = json.loads(rlvr(command, "--collect", "--json").stdout)
    assert [one["status"] for one in told["trials"]] == ["finished"] * 2
    left = rlvr(command, "--backend", "slurm")
    assert (left.returncode, "all trials have finished" in left.stderr) == (2, True)


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of two nodes with one processor each."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    memory = {"object_store_memory": 100 * 2**20}
    made = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **memory}
    )
    try:
        made.add_node(num_cpus=1, **memory)
        yield made
    finally:
        made.shutdown()


def runs_of(tmp_path):
    """Processes that train in the sweep's folder."""
    found = []
    for one in psutil.process_iter():
        try:
            if "rlvr_core.builtin.sweeps.child" in one.cmdline() and one.cwd() == str(tmp_path):
                found.append(one)
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
def test_on_a_ray_cluster_that_loses_a_worker_and_a_sweep_that_is_killed(
    command, cluster, tmp_path
):
    base = yaml.safe_load((tmp_path / "base.yaml").read_text())
    base["train"]["steps"] = 40
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    on_ray = [*command, "--backend", "ray", "--address", cluster.address]

    too_much = rlvr(on_ray, "--gpus", "1")
    assert too_much.returncode == 4
    assert "1 CPU and 1 GPU" in too_much.stderr
    assert not (tmp_path / "sweeps").exists()

    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    first = subprocess.Popen(on_ray, env=env, stderr=subprocess.PIPE, text=True)
    begun = tmp_path / "sweeps/tries/trial000/seed5"
    wait_for(lambda: list(begun.glob("tries-*/checkpoints/step000004/COMPLETE")))
    assert runs_of(tmp_path)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    wait_for(lambda: not runs_of(tmp_path))  # Ray ends the tasks of a sweep that is gone

    second = subprocess.Popen(on_ray, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    wait_for(lambda: runs_of(tmp_path))[0].parent().kill()  # the worker, and its run with it
    out, told = second.communicate(timeout=400)
    assert second.returncode == 0, told.decode()
    assert b"trial 0 seed 5: goes on" in told
    assert out.decode().splitlines()[-1] == "report: sweeps/tries/report.html"
    for trial in ("trial000", "trial001"):  # one run each, which went on
        (run,) = (tmp_path / f"sweeps/tries/{trial}/seed5").glob("tries-*")
        assert json.loads((run / "run.json").read_text())["outcome"] == "finished"
