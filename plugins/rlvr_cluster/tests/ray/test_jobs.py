"""``rlvr launch --backend ray`` and ``rlvr jobs``, on a real cluster with its job server."""

import importlib.util
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from rlvr_cluster.jobs.job_book import JobBook
from rlvr_cluster.jobs.protocol import JobLauncher
from rlvr_cluster.jobs.ray import RayLauncher
from rlvr_cluster.jobs.ray_client import JobServer, address_of
from rlvr_core.api import ConfigError, LaunchRequest, MachineError, Reference
from tests.support.tables import table

NEEDS_RAY = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'rlvr-core[ray]'"
)
PATIENCE = 180.0


@pytest.fixture
def here(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    (folder / "config.yaml").write_text("run: {name: demo}\n")
    return folder


def request(*words):
    config = Path("config.yaml")
    return LaunchRequest(("run", "config.yaml", *words), "demo", files=(config,))


def launcher(**options):
    return RayLauncher(RayLauncher.Config(**({"store": "file:///shared/runs"} | options)))


# -- plans ---------------------------------------------------------------------------------------


def test_a_plan_says_command_files_resources_and_environment(here, tmp_path):
    (here / "near.txt").write_text("12345")
    far = tmp_path / "far" / "data.jsonl"
    far.parent.mkdir()
    far.write_text("{}\n")
    asked = replace(request("--set", "a=1"), references=(Reference("data.path", str(far), far),))
    one = launcher(
        cpus=2,
        gpus=["1"],
        memory_gb=1.5,
        resources=["lab=0.5"],
        env=["A=b c"],
        include=["near.txt"],
    )
    assert isinstance(one, JobLauncher)
    plan = one.plan(asked)
    assert one.plan(asked) == plan
    details = json.loads(json.dumps(plan.details))
    assert details["command"] == [
        *("python", "-m", "rlvr_core.cli.main", "launch", "config.yaml", "--set", "a=1"),
        *("--set", "data.path=../far/data.jsonl"),
        *("--backend", "local", "--processes", "1", "--gpus", "0"),
    ]
    assert details["directory"] == "work"
    assert [file["key"] for file in details["files"]] == [
        "far/data.jsonl",
        "work/config.yaml",
        "work/near.txt",
    ]
    assert details["resources"] == {
        "entrypoint_num_cpus": 2,
        "entrypoint_num_gpus": 1,
        "entrypoint_memory": 1610612736,  # 1.5 * 2**30
        "entrypoint_resources": {"lab": 0.5},
    }
    assert details["environment"] == {"A": "b c", "RAY_JOB_STOP_WAIT_TIME_S": "600"}
    assert plan.lines[:4] == (
        "a Ray job for demo, submitted to http://127.0.0.1:8265",
        "it needs: 2 CPU, 1 GPU, 1.5 GiB of memory, 0.5 lab",
        "command: python -m rlvr_core.cli.main launch config.yaml --set a=1 --set "
        "data.path=../far/data.jsonl --backend local --processes 1 --gpus 0, in work",
        "copies of the run: file:///shared/runs/JOB",
    )
    assert "3 files go along, 26 bytes" in plan.lines  # 3 + 18 + 5


def test_gpus_are_given_by_number_and_have_to_fit(here):
    apart = replace(request(), engine_apart=True)
    words = launcher(gpus=2, engine_gpus=1).plan(apart).details["command"]
    assert words[-6:] == ["--processes", "2", "--gpus", "0,1", "--engine-gpus", "2"]
    assert launcher().plan(request()).details["command"][3:] == ["run", "config.yaml"]
    two = launcher(processes=2).plan(request()).details["command"]
    assert two[-4:] == ["--backend", "local", "--processes", "2"]
    with pytest.raises(ConfigError, match="engine works inside"):
        launcher(gpus=2, engine_gpus=1).plan(request())
    with pytest.raises(ConfigError, match="3 processes on 2 GPUs"):
        launcher(gpus=2, processes=3).plan(request())
    with pytest.raises(ValidationError, match="give their number, as in 2"):
        launcher(gpus=["0", "1"])


@pytest.mark.parametrize(("options", "what"), table(__file__, "refused"))
def test_what_cannot_be_meant_or_must_stay_here_is_refused(here, options, what):
    (here / "keys").mkdir()
    (here / "keys" / "settings.py").write_text('api_key = "abcdef123456"\n')
    with pytest.raises(ConfigError, match=what) as caught:
        launcher(**options).plan(request())
    assert "0123456789abcdef" not in str(caught.value)
    assert "abcdef123456" not in str(caught.value)


def test_a_password_in_the_address_is_not_told(here):
    with pytest.raises(ConfigError) as caught:
        address_of("http://me:hunter2@head:8265")
    assert "hunter2" not in str(caught.value)
    assert "http://head:8265" in str(caught.value)


def test_files_beyond_what_the_job_server_takes_are_refused(here):
    with (here / "large.bin").open("wb") as file:
        file.truncate(101 << 20)
    with pytest.raises(ConfigError, match="101 MB would go along, more than 100") as caught:
        launcher(include=["large.bin"]).plan(request())
    assert "the largest is large.bin" in str(caught.value)


def test_the_address_given_comes_before_the_environments(here, monkeypatch):
    assert address_of(None) == "http://127.0.0.1:8265"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")  # the cluster's own, no job server's
    assert address_of(None) == "http://127.0.0.1:8265"
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265/")
    assert address_of(None) == "http://head:8265"
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "https://jobs.example")
    assert address_of(None) == "https://jobs.example"
    assert address_of("http://other:1") == "http://other:1"


def test_no_job_is_written_down_where_nobody_answers(here, free_port):
    one = launcher(address=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(MachineError, match="no job server of a Ray cluster answers") as caught:
        one.submit(one.plan(request()))
    assert "ray start --head" in str(caught.value)
    assert JobBook().jobs() == []


# -- on a cluster --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(ray_jobs):
    """The address of the job server of a cluster of two processors."""
    with ray_jobs(num_cpus=2, resources={"lab": 1}) as made:
        yield made.server


@pytest.fixture
def submitted(lab, cluster, tmp_path, monkeypatch):
    """Submits the laboratory's run to the cluster; the arguments of ``rlvr launch``."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # another cluster, which must not matter
    return lambda *words: (
        *("launch", "config.yaml", "--backend", "ray", "--address", cluster, *words),
        *("--store", f"file://{tmp_path}/store", "--python", sys.executable),
        *("--env", f"PYTHONPATH={lab.env()['PYTHONPATH']}", "--env", "OMP_NUM_THREADS=1"),
    )


@NEEDS_RAY
@pytest.mark.slow
def test_a_run_with_actors_goes_through_ray_is_followed_listed_and_fetched(lab, submitted):
    # the job's own processor and its actor's are the two that the cluster has
    lab.write(engine={"use": "ray", "with": {"actors": 1}}, train={"steps": 2, "lr": 1e-3})
    done = lab.rlvr(*submitted("--wait"))
    job, *log = done.stdout.splitlines()
    assert [line.split()[1] for line in log if line.startswith("step ")][-2:] == ["1/2", "2/2"]
    assert f"{job}: finished (SUCCEEDED" in done.stderr
    ((name, state),) = [
        (load["job"], load["state"])
        for load in json.loads(lab.rlvr("jobs", "list", "--states", "--json").stdout)
    ]
    assert (name, state) == (job, "finished")
    assert "step 2/2" in lab.rlvr("jobs", "logs", job).stdout
    assert not lab.runs()
    lab.rlvr("jobs", "fetch", job)
    (run,) = lab.runs()
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [step["engine/actors"] for step in steps] == [1, 1]
    assert json.loads((run / "run.json").read_text())["outcome"] == "finished"


@NEEDS_RAY
@pytest.mark.slow
def test_a_job_that_is_stopped_writes_a_checkpoint_first(lab, submitted):
    lab.write(train={"steps": 5000, "lr": 1e-3, "warmup_steps": 1}, checkpoint={"every": 4000})
    # Ray signals every process of the job, and the launcher forwards what it gets
    words = submitted("--wait", "--processes", "2")
    waiting = lab.started(*words, together=True)
    try:
        for line in waiting.stdout:
            if line.split()[:2] == ["step", "2/5000"]:  # shown while it goes on
                break
        lab.rlvr("jobs", "stop", "last")
        rest = waiting.stdout.read()
        assert waiting.wait(PATIENCE) == 130, rest
    finally:
        waiting.kill()
    assert "stopped (STOPPED" in rest
    lab.rlvr("jobs", "fetch", "last")
    (run,) = lab.runs()
    assert json.loads((run / "run.json").read_text())["outcome"] == "interrupted"
    last = sum(1 for _ in (run / "metrics.jsonl").open())
    assert 2 <= last < 4000
    assert [path.name for path in (run / "checkpoints").glob("step*")] == [f"step{last:06}"]


@NEEDS_RAY
@pytest.mark.slow
def test_a_job_goes_on_with_the_run_of_an_earlier_one(lab, submitted):
    lab.write(train={"steps": 2, "lr": 1e-3, "warmup_steps": 1}, checkpoint={"every": 1})
    first, *_ = lab.rlvr(*submitted("--wait")).stdout.splitlines()
    again = ("launch", "--backend", "ray", "--resume", "last", "--set", "train.steps=4", "--wait")
    done = lab.rlvr(*again)
    second, *log = done.stdout.splitlines()
    assert f"as job {first} was launched" in done.stderr
    assert [line.split()[1] for line in log if line.startswith("step ")][-2:] == ["3/4", "4/4"]
    told = json.loads(lab.rlvr("jobs", "list", "--json").stdout)
    assert len({one["runs"] for one in told if one["job"] in (first, second)}) == 1
    lab.rlvr("jobs", "fetch", second)
    (run,) = lab.runs()
    taken = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [one["step"] for one in taken] == [0, 1, 2, 3]
    lab.write(train={"steps": 4, "lr": 1e-3, "warmup_steps": 1}, checkpoint={"every": 1})
    lab.rlvr("run", "config.yaml", "--display", "none")
    straight = max(lab.runs(), key=lambda one: one.stat().st_mtime)
    assert straight != run
    weights = [one / "checkpoints" / "step000004" / "model.safetensors" for one in (run, straight)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


STAND_IN = """#!/bin/sh
echo "$A from $PWD: $(cat data/kept.txt) $CODE"
exit $CODE
"""


@NEEDS_RAY
@pytest.mark.slow
def test_files_environment_and_exit_code_arrive(here, cluster, capsys):
    """A shell script in place of Python: what Ray does with a job, without a run."""
    python = here / "stand-in"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    (here / "data").mkdir()
    (here / "data" / "kept.txt").write_text("kept")
    (here / "data" / ".gitignore").write_text("*.txt\n")  # T98: Ray would leave them out
    common = {
        "address": cluster,
        "python": str(python),
        "include": ["data"],
        "wait": True,
        "poll": 0.2,
        "resources": ["lab=1"],
    }
    for code in (0, 3):
        one = launcher(**common, env=["A=it's", f"CODE={code}"])
        assert one.submit(one.plan(request())) == code
        job, *log = capsys.readouterr().out.splitlines()
        # Ray's own line on how it began the job may come after it
        (said,) = [line for line in log if line.startswith("it's from ")]
        assert said.endswith(f": kept {code}")
        status = one.status(job)
        assert status.state == ("failed" if code else "finished")
        assert ("exit code 3" in status.detail) is bool(code)
        assert said in list(one.logs(job))
        one.stop(job)  # it has ended: nothing happens
        assert one.status(job) == status
    assert [entry.name for entry in JobBook().jobs()] == ["demo", "demo"]
    more = launcher(**(common | {"wait": False, "resources": ["lab=2"]}), env=["CODE=0"])
    more.submit(more.plan(request()))
    assert more.status(capsys.readouterr().out.strip()).state == "waiting"  # for ever
    with pytest.raises(MachineError, match="knows no job demo-none"):
        more.status("demo-none")


@NEEDS_RAY
@pytest.mark.slow
def test_an_answer_that_is_lost_does_not_look_refused(cluster, monkeypatch):
    """The second submission under a name is refused by the server, as the first went through."""
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    server = JobServer(cluster)
    assert os.environ["RAY_ADDRESS"] == "127.0.0.1:1"
    for _ in range(2):
        server.submit("twice", entrypoint="true")
    assert server.info("twice").entrypoint == "true"
