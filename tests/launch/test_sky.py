"""Plans for SkyPilot, against its own schemas, and ``rlvr launch --preflight``."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from rlvr_core.api import ConfigError, JobLauncher, LaunchRequest, MachineError, Reference
from rlvr_core.builtin.jobs.commands.attempt import attempt_words, own, resumption
from rlvr_core.builtin.jobs.commands.preflight import preflight
from rlvr_core.builtin.jobs.jobs import Job
from rlvr_core.builtin.jobs.sky import SkyLauncher, status_in

SCHEMAS = json.loads((Path(__file__).parent / "sky_schemas.json").read_text())


@pytest.fixture
def here(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("PATH", str(tmp_path))  # no sky
    (folder / "config.yaml").write_text("run: {name: demo}\n")
    return folder


def request(*words, first="run"):
    return LaunchRequest((first, "config.yaml", *words), "demo", files=(Path("config.yaml"),))


def launcher(**options):
    return SkyLauncher(SkyLauncher.Config(**({"store": "s3://b/runs"} | options)))


def task_of(plan):
    task = json.loads(json.dumps(plan.details["task"]))
    jsonschema.validate(task, SCHEMAS["task"])
    jsonschema.validate(task["resources"], SCHEMAS["resources"])
    return task


def test_a_task_says_machines_recovery_and_how_to_go_on(here, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_" + "x" * 34)
    far = here.parent / "far.jsonl"
    far.write_text("{}\n")
    one = launcher(
        accelerators="H100:8",
        engine_gpus=["2"],
        nodes=2,
        spot=True,
        recovery="EAGER_NEXT_REGION",
        infra="aws",
        image="docker:me/rlvr:1",
        env=["A=b"],
        secret=["HF_TOKEN"],
        setup=["pip install rlvr-core"],
    )
    asked = replace(
        request("--set", "a=1"),
        engine_apart=True,
        references=(Reference("data.path", str(far), far),),
    )
    assert isinstance(one, JobLauncher)
    plan = one.plan(asked)
    task = task_of(plan)
    assert task["num_nodes"] == 2
    assert task["resources"] == {
        "infra": "aws",
        "accelerators": "H100:8",
        "image_id": "docker:me/rlvr:1",
        "use_spot": True,
        "job_recovery": {"max_restarts_on_errors": 0, "strategy": "EAGER_NEXT_REGION"},
    }
    assert task["secrets"] == {"HF_TOKEN": None}
    assert "hf_xx" not in json.dumps(plan.details) + "".join(plan.lines)
    assert task["setup"] == "set -e\npip install rlvr-core"
    *begin, command = task["run"].splitlines()
    assert begin == ["set -e", "cd work", 'head=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)']
    job = plan.details["job"]
    assert command.startswith(
        f"exec python3 -m rlvr_core.builtin.jobs.commands.attempt --runs "
        f"s3://b/runs/{job} --job {job} -- launch config.yaml --set a=1"
    )
    assert "--set data.path=../far.jsonl" in command
    assert "--processes 6 --gpus 0,1,2,3,4,5 --engine-gpus 6,7 --nodes 2" in command
    assert command.endswith('--node-rank "$SKYPILOT_NODE_RANK" --main-address "$head"')
    assert [one["key"] for one in plan.details["files"]] == ["far.jsonl", "work/config.yaml"]


def test_the_shell_gives_the_words_as_they_are(here, tmp_path):
    plan = launcher(python=sys.executable).plan(request("--set", 'prompt.text=it\'s $HOME; "x"'))
    script = plan.details["task"]["run"].replace(
        "-m rlvr_core.builtin.jobs.commands.attempt", "-c 'import sys; print(sys.argv)'"
    )
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=True)
    words = eval(done.stdout)
    assert 'prompt.text=it\'s $HOME; "x"' in words
    assert words[-4:] == ["--backend", "accelerate", "--processes", "1"]


def test_an_evaluation_and_a_job_that_goes_on(here):
    plan = launcher().plan(request("--set", "model.path=m", first="eval"))
    assert "--results demo -- eval config.yaml --set model.path=m" in task_of(plan)["run"]
    again = launcher().plan(replace(request(), continues="s3://b/runs/old"))
    assert "--runs s3://b/runs/old --job" in task_of(again)["run"]
    assert "--takes-over -- launch" in task_of(again)["run"]
    job = Job("j", "core/sky", "demo", "c.yaml", options={"store": "s3://b/r", "spot": True})
    assert SkyLauncher.resume_remote(job, {"spot": False}) == {"store": "s3://b/r", "spot": False}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"store": None}, "copied to"),
        ({"store": "runs"}, "copied to"),
        ({"env": ["HF_TOKEN=hf_" + "abcdefghij" * 3 + "klmn"]}, "secret"),
        ({"env": ["A=b"], "secret": ["A"]}, "given by --env too"),
        ({"recovery": "FAILOVER"}, "--spot"),
        ({"accelerators": "L4:1", "engine_gpus": ["1"]}, "none is left"),
    ],
)
def test_what_cannot_be_meant_is_refused(here, options, what):
    with pytest.raises(ConfigError) as caught:
        launcher(**options).plan(replace(request(), engine_apart=True))
    assert what in str(caught.value)


def test_a_secret_that_is_not_there_and_a_missing_sky_are_told(here, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    one = launcher(secret=["HF_TOKEN"])
    with pytest.raises(MachineError, match="HF_TOKEN"):
        one.submit(one.plan(request()))
    with pytest.raises(MachineError, match="not installed"):
        launcher().submit(launcher().plan(request()))
    assert not (here.parent / "share" / "rlvr" / "jobs.jsonl").read_text()


SKY = """#!{python}
import json, os, pathlib, sys
words = sys.argv[1:]
said = pathlib.Path(r"{folder}")
with (said / "calls.jsonl").open("a") as file:
    file.write(json.dumps(words) + "\\n")
if (said / "hangs").exists():
    import time
    time.sleep(60)
if (said / "refuses").exists():
    sys.exit("sky.exceptions.ResourcesUnavailableError: no H100 in any region")
if words[:2] == ["jobs", "launch"]:
    task = json.loads(pathlib.Path(words[-1]).read_text())
    files = sorted(p for p in pathlib.Path(task["workdir"]).rglob("*") if p.is_file())
    shown = {{str(p.relative_to(task["workdir"])): p.read_text() for p in files}}
    (said / "got.json").write_text(json.dumps({{"task": task, "files": shown}}))
elif words[:2] == ["jobs", "queue"]:
    name = json.loads((said / "got.json").read_text())["task"]["name"]
    print("Fetching managed job statuses...")
    print(json.dumps([{{"job_id": 1, "job_name": name, "status": "RUNNING"}}]))
elif words[:2] == ["jobs", "logs"]:
    print("step 1\\nstep 2")
"""


@pytest.fixture
def sky(here, tmp_path):
    """A command ``sky`` that keeps what it is given; returns the folder with it."""
    kept = tmp_path / "said"
    kept.mkdir()
    program = tmp_path / "sky"
    program.write_text(SKY.format(python=sys.executable, folder=kept))
    program.chmod(0o755)
    return kept


def test_a_job_is_submitted_followed_and_stopped_and_its_secret_is_in_no_file(
    sky, here, monkeypatch, capsys
):
    value = "hf_" + "Zq7" * 12
    monkeypatch.setenv("HF_TOKEN", value)
    (here / ".gitignore").write_text("*\n")
    one = launcher(accelerators="H100:8", secret=["HF_TOKEN"])
    plan = one.plan(request())
    assert one.submit(plan) == 0
    got = json.loads((sky / "got.json").read_text())
    task = got["task"]
    folder = task.pop("workdir")
    assert task == plan.details["task"]
    assert not Path(folder).exists()  # nothing is left here
    assert got["files"][".skyignore"] == ""
    (config,) = (text for name, text in got["files"].items() if name.endswith("config.yaml"))
    assert config == (here / "config.yaml").read_text()
    everything = (sky / "got.json").read_text() + (sky / "calls.jsonl").read_text()
    everything += (here.parent / "share" / "rlvr" / "jobs.jsonl").read_text()
    assert value not in everything + capsys.readouterr().out
    job = task["name"]
    assert one.status(job).state == "running"
    assert list(one.logs(job)) == ["step 1", "step 2"]
    with pytest.raises(ConfigError, match=job):
        one.submit(plan)  # a second writer of its place
    one.stop(job)
    calls = [json.loads(line) for line in (sky / "calls.jsonl").read_text().splitlines()]
    assert calls[0][:6] == ["jobs", "launch", "--yes", "--detach-run", "--secret", "HF_TOKEN"]
    assert calls[-1] == ["jobs", "cancel", "--yes", "--name", job]


def test_a_job_that_sky_refuses_is_not_written_down(sky, here):
    (sky / "refuses").touch()
    one = launcher(accelerators="H100:8")
    with pytest.raises(MachineError, match="no H100 in any region"):
        one.submit(one.plan(request()))
    assert not (here.parent / "share" / "rlvr" / "jobs.jsonl").read_text()


def test_a_sky_that_never_ends_is_left_and_its_job_is_kept(sky, here, monkeypatch):
    monkeypatch.setattr("rlvr_core.builtin.jobs.sky._LONGEST", 2.0)
    (sky / "hangs").touch()
    one = launcher(accelerators="H100:8")
    plan = one.plan(request())
    begun = time.monotonic()
    with pytest.raises(MachineError, match="sky jobs launch has not ended"):
        one.submit(plan)
    with pytest.raises(MachineError, match="sky jobs queue has not ended"):
        one.status(plan.details["job"])
    assert time.monotonic() - begun < 30
    (line,) = (here.parent / "share" / "rlvr" / "jobs.jsonl").read_text().splitlines()
    assert json.loads(line)["job"] == plan.details["job"]  # it may have been submitted


TAKES = """
import json, sys
from sky import Task

task = Task.from_yaml_config(json.load(sys.stdin))
(one,) = task.resources
print(json.dumps([task.num_nodes, one.accelerators, one.use_spot, str(one.cloud), one.image_id]))
"""


@pytest.mark.skipif("RLVR_SKY_PYTHON" not in os.environ, reason="RLVR_SKY_PYTHON=PYTHON with sky")
def test_skypilot_itself_reads_the_task(here, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "x")
    monkeypatch.setenv("HOME", str(here))  # where SkyPilot keeps its state
    options = {"infra": "aws", "cpus": "8+", "memory": "64", "disk_gb": 300, "restarts": 2}
    one = launcher(
        accelerators="H100:8", nodes=2, spot=True, recovery="FAILOVER", image="docker:me/rlvr:1",
        secret=["HF_TOKEN"], env=["A=b"], setup=["pip install rlvr-core"], max_hourly_cost=30.0,
        **options,
    )  # fmt: skip
    done = subprocess.run(
        [os.environ["RLVR_SKY_PYTHON"], "-c", TAKES],
        input=json.dumps(one.plan(request()).details["task"]), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout.splitlines()[-1])
    assert read[:4] == [2, {"H100": 8}, True, "AWS"]
    assert list(read[4].values()) == ["docker:me/rlvr:1"]


def test_states_are_read_from_the_queue():
    rows = [
        {"job_id": 3, "job_name": "a", "status": "RECOVERING", "recovery_count": 2},
        {"job_id": 2, "job_name": "a", "status": "SUCCEEDED", "recovery_count": 0},
        {"job_id": 4, "job_name": "b", "status": "FAILED_NO_RESOURCE", "recovery_count": 0},
    ]
    text = "Fetching jobs...\n" + json.dumps(rows)
    assert status_in(text, "a").state == "waiting"
    assert "2 times" in status_in(text, "a").detail
    assert status_in(text, "b").state == "failed"
    assert status_in(text, "c").state == "unknown"


def test_an_attempt_goes_on_with_the_newest_run_of_its_place(here, tmp_path):
    place = tmp_path / "store" / "job"
    assert resumption(place.as_uri(), Path("runs")) == []
    for name in ("demo-1", "demo-2"):
        (place / name).mkdir(parents=True)
        for file in ("run.json", "resolved.yaml"):
            (place / name / file).write_text("{}")
    assert resumption(place.as_uri(), Path("runs")) == ["--resume", str(here / "runs" / "demo-2")]
    environment = {}
    own(environment, "j", takes_over=False)
    assert environment == {"RLVR_OWNER": "job j"}
    assert attempt_words("u", "j", ["run"], takes_over=True)[-3:] == ["--takes-over", "--", "run"]


def test_preflight_probes_the_store_and_says_what_is_wrong(here, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    good = tmp_path / "store"
    one = launcher(store=good.as_uri(), secret=["HF_TOKEN"])
    plan = one.plan(request(first="eval"))
    assert preflight(one, plan, ["config.yaml"], as_json=True, evaluates=True) == 1
    found = {x["check"]: x for x in json.loads(capsys.readouterr().out)["checks"]}
    assert found["store"]["verdict"] == "ok"
    assert [path.name for path in good.rglob("*")] == [".store.lock"]  # the probe is gone
    assert found["secrets"]["verdict"] == "wrong"
    assert found["machines"]["verdict"] == "wrong"  # no sky to ask
    assert "rlvr-core" in found["plugins"]["found"]
    (tmp_path / "file").write_text("")
    bad = launcher(store=f"{(tmp_path / 'file').as_uri()}/x")
    plan = bad.plan(request(first="eval"))
    assert preflight(bad, plan, ["config.yaml"], as_json=True, evaluates=True) == 1
    found = {x["check"]: x for x in json.loads(capsys.readouterr().out)["checks"]}
    assert found["store"]["verdict"] == "wrong"
