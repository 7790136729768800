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
import time
from pathlib import Path

import psutil
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from plugins.rlvr_cluster.tests.ray.machines import Machine, Network, ip

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

PORT = 6379
PATIENCE = 300
MEMORY = str(100 * 2**20)


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """Two machines, with a raylet of one processor and one of two; the head is on the first."""
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
                ray += [f"--node-ip-address={network.address(index)}", f"--num-cpus={1 + index}"]
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


def start(lab, machines, **sections):
    """Start a run on the first machine."""
    address = f"{machines[0].network.address(0)}:{PORT}"
    options = {"actors": 2, "address": address, "deadline": 180} | sections.pop("options", {})
    lab.write(
        engine={"use": "ray", "with": options},
        **{"train": {"steps": 3, "lr": 1e-3, "warmup_steps": 1}, "guards": ["core/sync"]}
        | sections,
    )
    return subprocess.Popen(
        machines[0].words(*lab.command("run", "config.yaml", "--display", "none")),
        cwd=lab.folder,
        env=lab.env(),
        stderr=subprocess.PIPE,
        text=True,
    )


def steps(lab):
    files = [run / "metrics.jsonl" for run in lab.runs()]
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines(True)]
    return [json.loads(line) for line in lines if line.endswith("\n")]


def left(machines):
    return [name for machine in machines for name in machine.left() if "rlvr-weights-" in name]


def actor_of(machine):
    """The process of the actor on a machine."""
    pids = ip("netns", "pids", machine.network.names[machine.index]).split()
    (found,) = [one for one in map(int, pids) if "RolloutActor" in psutil.Process(one).cmdline()[0]]
    return found


def test_an_actor_on_another_machine_gets_every_version_and_so_does_its_successor(
    lab, machines, model_dir
):
    network = machines[0].network
    before = network.sent(0)
    train = {"steps": 500, "lr": 1e-3, "warmup_steps": 1, "max_staleness": 1}
    process = start(lab, machines, train=train)

    def reached(condition):
        until = time.monotonic() + PATIENCE
        while process.poll() is None and not condition(steps(lab)):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert process.poll() is None, process.stderr.read()[-3000:]

    try:
        reached(lambda found: len(found) > 2)
        os.kill(actor_of(machines[1]), signal.SIGKILL)
        reached(lambda found: sum(one["engine/restarts"] for one in found) == 1)
        reached(lambda found: found[-1]["engine/actors"] == 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 130, process.stderr.read()
    finally:
        process.kill()
    (run,) = lab.runs()
    assert json.loads(lab.rlvr("show", run.name, "--json").stdout)["ledger"]["balanced"] is True
    assert max(step["staleness/max"] for step in steps(lab)) == 1
    size = sum(one.stat().st_size for one in model_dir.glob("*.safetensors"))
    syncs = sum(step["engine/actors"] == 2 for step in steps(lab)) - 1
    assert network.sent(0) - before > syncs * size > size
    assert left(machines) == []


@pytest.mark.vllm
def test_an_adapter_reaches_vllm_on_another_machine(lab, machines, model_dir):
    pytest.importorskip("vllm")
    config = AutoConfig.from_pretrained(model_dir)
    config.head_dim = 32  # vLLM's CPU build has no kernel for 16
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(lab.folder / "wider")
    AutoTokenizer.from_pretrained(model_dir).save_pretrained(lab.folder / "wider")
    vllm = {"use": "vllm", "with": {"kv_cache_mb": 64, "lora": "adapter"}}
    process = start(
        lab,
        machines,
        options={"engine": vllm, "actors": 1, "cpus": 2},  # room for it is there alone
        model={"path": "wider", "lora": {"rank": 4, "alpha": 8}},
        train={"steps": 3, "lr": 1e-2, "warmup_steps": 1},
    )
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told[-3000:]
    found = steps(lab)
    assert [one["version"] for one in found] == [0, 1, 2]
    assert all(one["mismatch/abs_mean"] < 1e-4 for one in found)
    assert left(machines) == []
