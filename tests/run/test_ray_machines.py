"""``rlvr launch --backend ray --nodes``: machines that Ray places, on a real cluster.

Its nodes are raylets of this machine, with processors and GPUs that they only pretend to have.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from rlvr_core.api import ConfigError
from rlvr_core.builtin.ray import bundles
from rlvr_core.record.checkpoints import verify

pytest.importorskip("ray")

PATIENCE = 240.0
NODE = {"object_store_memory": 100 * 2**20}
SAMPLER = {"use": "shuffle", "with": {"refill": 1.0}}
TRAIN = {
    "steps": 4,
    "prompts_per_step": 4,
    "lr": 1e-3,
    "warmup_steps": 1,
    "tokens_per_micro_batch": 60,
}
LONG = TRAIN | {"steps": 5000}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def cluster():
    """A head that only has the job server, and two nodes of four processors and two GPUs each."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    port = free_port()
    made = cluster_utils.Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "include_dashboard": True,
            "dashboard_port": port,
            "dashboard_agent_listen_port": free_port(),
            **NODE,
        },
    )
    made.server = f"http://127.0.0.1:{port}"
    try:
        for _ in range(2):
            made.add_node(num_cpus=4, num_gpus=2, **NODE)
        yield made
    finally:
        made.shutdown()


@pytest.fixture
def submitted(lab, cluster, tmp_path, monkeypatch):
    """The arguments of ``rlvr launch`` for two machines of the cluster."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return lambda *words: (
        *("launch", "config.yaml", "--backend", "ray", "--address", cluster.server),
        *("--store", f"file://{tmp_path}/store", "--python", sys.executable, "--nodes", "2"),
        *("--env", f"PYTHONPATH={lab.env()['PYTHONPATH']}", "--env", "OMP_NUM_THREADS=1"),
        *("--wait", *words),
    )


def wait_for(reached, what=""):
    until = time.monotonic() + PATIENCE
    while not (found := reached()):
        assert time.monotonic() < until, what
        time.sleep(0.1)
    return found


def ours(*words):
    """Processes of the cluster whose command has all of these words."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            command = one.cmdline()
            found += [one] if all(word in command for word in words) else []
    return found


def group_states(cluster):
    """States of the placement groups, by the cluster itself."""
    import ray

    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    try:
        return sorted(one["state"] for one in ray.util.placement_group_table().values())
    finally:
        ray.shutdown()


def fetched(lab, job="last"):
    lab.rlvr("jobs", "download", job)
    (run,) = lab.runs()
    return run


@pytest.mark.slow
def test_two_machines_with_actors_in_one_group_do_the_run_of_one_bit_for_bit(
    lab, cluster, submitted
):
    sections = {"sampler": SAMPLER, "train": TRAIN, "checkpoint": {"every": 2, "keep": 9}}
    lab.write(**sections, engine={"use": "ray", "with": {"actors": 1}})
    done = lab.rlvr(*submitted("--processes", "2", "--cpus", "2"), timeout=550)
    job, *log = done.stdout.splitlines()
    print(done.stdout, done.stderr)
    assert [line.split()[1] for line in log if line.startswith("step ")][-1] == "4/4"
    two = fetched(lab, job)
    lab.write(**sections)
    lab.rlvr("launch", "config.yaml", "--processes", "4", "--display", "none")
    one = lab.runs()[-1]
    assert one != two
    for name in ("model.safetensors", "trainer/optimizer.safetensors"):
        first, second = (load_file(run / "checkpoints" / "step000004" / name) for run in (one, two))
        torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert group_states(cluster) == []
