"""Rollouts by an actor on another machine: a raylet that shares no network and no memory.

The two machines are network namespaces on one bridge, each with a ``/dev/shm`` of its own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))
from machines import Machine, Network

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

PORT = 6379
MEMORY = str(100 * 2**20)


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """Two machines, each with a raylet of one processor; the cluster's head is on the first."""
    short = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # paths of sockets are short
    with Network(2) as network:
        made = [
            Machine(tmp_path_factory.mktemp("machines") / str(index), network, index, "400m", "64m")
            for index in range(2)
        ]
        try:
            for index, one in enumerate(made):
                head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
                where = head if index == 0 else [f"--address={network.address(0)}:{PORT}"]
                ray = [sys.executable, "-m", "ray.scripts.scripts", "start", *where]
                ray += [f"--node-ip-address={network.address(index)}", "--num-cpus=1"]
                ray += ["--object-store-memory", MEMORY, "--disable-usage-stats"]
                ray += ["--temp-dir", str(short)] if index == 0 else []
                subprocess.run(one.words(*ray), check=True, timeout=200, env=environment())
            yield made
        finally:
            for process in of(short):
                process.kill()
            psutil.wait_procs(of(short), 30)
            for one in made:
                one.remove()
            shutil.rmtree(short, ignore_errors=True)


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


def of(folder):
    """The processes whose command line names the cluster's folder."""
    found = []
    for one in psutil.process_iter():
        with_folder = False
        try:
            with_folder = any(str(folder) in word for word in one.cmdline())
        except psutil.Error:
            continue
        if with_folder:
            found.append(one)
    return found


def run(lab, machines, transport="auto", engine="transformers"):
    address = f"{machines[0].network.address(0)}:{PORT}"
    options = {"engine": engine, "actors": 2, "address": address, "deadline": 180}
    lab.write(
        engine={"use": "ray", "with": options, "transport": transport},
        train={"steps": 3, "lr": 1e-3, "warmup_steps": 1},
        guards={"sync": True},
    )
    command = lab.command("run", "config.yaml", "--display", "none")
    return subprocess.run(
        machines[0].words(*command),
        cwd=lab.folder,
        env={**lab.env(), "TMPDIR": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


def test_an_actor_on_another_machine_gets_every_version_of_the_weights(lab, machines):
    network = machines[0].network
    before = network.sent(0)
    done = run(lab, machines)
    assert done.returncode == 0, done.stderr[-3000:]
    (folder,) = lab.runs()
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {one["engine/actors"] for one in steps} == {2.0}
    size = sum(one.stat().st_size for one in folder.glob("checkpoints/*/model/*.safetensors"))
    print("sent", network.sent(0) - before, "model", size)
    assert [name for one in machines for name in one.left() if "rlvr-weights-" in name] == []


def test_files_alone_do_not_reach_it_and_the_error_says_what_does(lab, machines):
    done = run(lab, machines, "files")
    assert done.returncode == 1, done.stderr[-3000:]
    assert "cannot read the weights" in done.stderr
    assert "leave engine.transport out: weights then go over TCP" in done.stderr
