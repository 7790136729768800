"""A team's own harness, run as a command: what is read back, and everything that can go wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import yaml

from rlvr_core.builtin.evals.command import end_group

HARNESS = """
import json, os, sys, time
from pathlib import Path
model, output = sys.argv[1:3]
print("looking at", model)
print("warming up", file=sys.stderr)
with open("calls", "a") as file:
    file.write(f"{os.getpid()}\\n")
mode = os.environ.get("MODE", "")
if mode == "hang":
    import subprocess
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path("pids").write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)
if mode == "fail":
    print("CUDA out of memory")
    sys.exit(3)
config = json.loads((Path(model) / "config.json").read_text())
found = {
    "tasks": {"gsm8k::tulu": {"exact": 0.25, "count": 40}, "plain": {"f1": 0.5}},
    "list": [1.5, config["hidden_size"]],
    "seen": sorted(os.environ),
    "odd": {"text": "0.5", "truth": True, "nan": float("nan")},
}
Path(output).write_text("{" if mode == "garbage" else json.dumps(found))
"""
METRICS = {
    "exact": {
        "path": ["tasks", "gsm8k::tulu", "exact"],
        "n": "tasks.gsm8k::tulu.count",
        "rate": True,
    },
    "f1": "tasks.plain.f1",
    "width": ["list", 1],
}


@pytest.fixture
def harness(lab):
    (lab.folder / "harness.py").write_text(HARNESS)

    def config(**options):
        given = {
            "name": "olmes",
            "command": [sys.executable, "harness.py", "{checkpoint}", "{output}"],
            "metrics": METRICS,
        } | options
        text = yaml.safe_dump({"tasks": [{"use": "external", "with": given}]})
        (lab.folder / "external.yaml").write_text(text)
        return ("--config", "external.yaml", "--out", "out")

    return config


def test_metrics_come_back_with_n_and_interval(lab, model_dir, harness, monkeypatch):
    monkeypatch.setenv("SECRET_SAUCE", "tomato")
    monkeypatch.setenv("TEAM_TOKEN", "hunter2")
    options = harness(env={"MODE": "calm"}, pass_env=["TEAM_TOKEN"])
    found = lab.json("eval", model_dir, *options)["tasks"]["core/external:olmes"]
    # questions that are not seen are not taken for clean ones
    assert "not seen here" in found["contamination"]["not_checked"][0]
    assert found["contamination"]["against"] == []
    numbers = found["task_metrics"]
    assert (numbers["exact"]["value"], numbers["exact"]["n"]) == (0.25, 40)
    assert numbers["exact"]["low"] == pytest.approx(0.1419, abs=5e-5)  # Wilson, 10 in 40
    assert numbers["exact"]["high"] == pytest.approx(0.4019, abs=5e-5)
    assert (numbers["f1"]["value"], numbers["f1"]["n"], numbers["f1"]["method"]) == (0.5, 0, "none")
    assert numbers["width"]["value"] == 32.0
    assert found["metrics"] == {}

    out = lab.folder / "out" / "core_external_olmes"
    spec = json.loads((out / "spec.json").read_text())
    assert spec["spec"]["options"]["command"][1:] == ["harness.py", "{checkpoint}", "{output}"]
    assert spec["spec"]["identity"]["files"].keys() == {"harness.py"}
    assert spec["engine"] is None
    seen = json.loads((out / "output" / "metrics.json").read_text())["seen"]
    assert {"PATH", "MODE", "TEAM_TOKEN"} <= set(seen)
    assert not {"SECRET_SAUCE", "PYTHONPATH", "VIRTUAL_ENV"} & set(seen)
    assert not [
        path for path in out.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()
    ]
    log = (out / "external.log").read_text()
    assert f"looking at {Path(model_dir).resolve()}" in log
    assert "warming up" in log

    # it is done: the command is not run again, and the same numbers are printed
    again = lab.rlvr("eval", model_dir, *options)
    assert (lab.folder / "calls").read_text().count("\n") == 1
    assert "task: exact" in again.stdout
    assert "loading" not in again.stderr
    # another script is another evaluation
    (lab.folder / "harness.py").write_text(HARNESS + "\n# changed\n")
    refused = lab.rlvr("eval", model_dir, *options, check=2)
    assert "identity.files.harness.py" in refused.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"env": {"MODE": "fail"}}, ["ended with exit code 3", "CUDA out of memory"]),
        ({"env": {"MODE": "garbage"}}, ["left a file that is no JSON", "warming up"]),
        ({"result": "other/*.json", "command": None}, ["left 0 files that fit 'other/*.json'"]),
        ({"command": ["true", "{checkpoint}", "{output}"]}, ["left no 'metrics.json'"]),
        ({"command": ["./nowhere", "{checkpoint}", "{output}"]}, ["cannot be started"]),
        (
            {"metrics": {"a": "odd.text", "b": "odd.truth", "c": "odd.nan", "d": "tasks.x"}},
            [
                "metric 'a': \"0.5\" is no number",
                "metric 'b': true is no number",
                "metric 'c': NaN is no number",
                "metric 'd': no 'x' in tasks, which has: gsm8k::tulu, plain",
            ],
        ),
        ({"metrics": {"w": {"path": "list.0", "n": 3, "rate": True}}}, ["no '0' in list"]),
        (
            {"metrics": {"w": {"path": ["list", 0], "n": 3, "rate": True}}},
            ["1.5 is no rate"],
        ),
    ],
    ids=["exit", "garbage", "pattern", "nothing", "missing", "numbers", "list", "rate"],
)
def test_every_fault_names_the_log_and_leaves_no_result(lab, model_dir, harness, options, told):
    if options.get("command", "") is None:
        options["command"] = [sys.executable, "harness.py", "{checkpoint}", "{output_dir}/m.json"]
    failed = lab.rlvr("eval", model_dir, *harness(**options), check=1)
    for one in told:
        assert one in failed.stderr
    if told != ["cannot be started"]:
        assert "external.log" in failed.stderr
    out = lab.folder / "out" / "core_external_olmes"
    assert not (out / "summary.json").exists()
    assert (out / "results.jsonl").read_text() == ""
    # and the next attempt may succeed, reading nothing of the first
    harness()
    lab.rlvr("eval", model_dir, "--config", "external.yaml", "--out", "out")


def test_faults_of_the_configuration_come_before_the_command_and_at_once(lab, model_dir, harness):
    options = harness(command=["true"], pass_env=["NOT_SET_ANYWHERE"], cwd="nowhere", result="../x")
    refused = lab.rlvr("eval", model_dir, *options, check=2)
    for told in ("names no {checkpoint}", "names no {output}", "NOT_SET_ANYWHERE", "'nowhere'"):
        assert told in refused.stderr
    assert "result must lie below" in refused.stderr
    refused = lab.rlvr("eval", model_dir, *harness(env={"HF_TOKEN": "x"}), check=2)
    assert "name it in pass_env" in refused.stderr
    rate = {"m": {"path": "x", "rate": True}}
    refused = lab.rlvr("eval", model_dir, *harness(metrics=rate), check=2)
    assert "a rate needs n" in refused.stderr
    assert not (lab.folder / "calls").exists()


def gone(pids):
    return not any(psutil.pid_exists(pid) and _runs(pid) for pid in pids)


def _runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(check):
    deadline = time.monotonic() + 120
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_harness_that_takes_too_long_is_ended_with_all_it_started(lab, model_dir, harness):
    failed = lab.rlvr("eval", model_dir, *harness(env={"MODE": "hang"}, timeout=3), check=1)
    assert "was stopped after 3 s" in failed.stderr
    assert "looking at" in failed.stderr
    pids = [int(pid) for pid in (lab.folder / "pids").read_text().split()]
    assert len(pids) == 2
    wait_for(lambda: gone(pids))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminate"])
def test_t76_interrupted_nothing_outlives_it_and_it_runs_again(lab, model_dir, harness, number):
    options = harness(env={"MODE": "hang"})
    pids = lab.folder / "pids"

    def send():
        wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        os.kill(os.getpid(), number)

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send)
        lab.rlvr("eval", model_dir, *options, check=130)
        sent.result()
    wait_for(lambda: gone([int(pid) for pid in pids.read_text().split()]))
    (lab.folder / "harness.py").write_text(HARNESS.replace('mode == "hang"', "False"))
    lab.rlvr("eval", model_dir, *options)
    assert (lab.folder / "calls").read_text().count("\n") == 2


def test_what_ignores_being_asked_is_killed(monkeypatch):
    monkeypatch.setattr("rlvr_core.builtin.evals.command.GRACE", 0.3)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}; time.sleep(600)"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    process.stdout.readline()
    end_group(process)
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_t92_checkpoints_are_watched_by_another_harness(lab, model_dir, harness, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", lab.env()["PYTHONPATH"])
    run = lab.run(model_dir)
    harness(command=[sys.executable, str(lab.folder / "harness.py"), "{checkpoint}", "{output}"])
    lab.rlvr("watch", run, "--config", "external.yaml", "--out", "seen", "--poll", "0.2")
    rows = json.loads((lab.folder / "seen" / "table.json").read_text())
    found = {(row["step"], row["task"], row["metric"]): row["value"] for row in rows}
    assert found[1, "core/external:olmes", "task:exact"] == 0.25
    assert found[2, "core/external:olmes", "task:width"] == 32.0
    assert len(rows) == 6
