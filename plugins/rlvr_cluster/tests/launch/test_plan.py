"""Plans are pure, say what will happen, and refuse what does not fit."""

import json
import os
import socket
from types import SimpleNamespace

import pytest

from rlvr_core.api import ConfigError, Launcher, LaunchRequest, MachineError, RunError
from rlvr_core.launch import processes
from rlvr_core.launch.accelerate import AccelerateLauncher
from rlvr_core.launch.local import LocalLauncher
from rlvr_core.launch.processes import exit_code, interface_to
from rlvr_core.parallel.ranks import LOST
from tests.support.tables import table

REQUEST = LaunchRequest(("run", "config.yaml"), "demo")


@pytest.fixture(autouse=True)
def _every_gpu_is_given(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def local(**options):
    return LocalLauncher(LocalLauncher.Config(**options))


def several(**options):
    return AccelerateLauncher(AccelerateLauncher.Config(**options))


def test_a_plan_is_json_and_the_same_each_time():
    launcher = local(gpus=[0, 1])
    assert isinstance(launcher, Launcher)
    plan = launcher.plan(REQUEST)
    assert launcher.plan(REQUEST) == plan
    assert json.loads(json.dumps(plan.details)) == {
        "processes": 2,
        "nodes": 1,
        "node_rank": 0,
        "main_address": None,
        "main_port": None,
        "environment": {"CUDA_VISIBLE_DEVICES": "0,1"},
        "command": ["python", "-m", "rlvr_core.launch.rank", "run", "config.yaml"],
    }
    assert "2 processes train demo" in plan.lines[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "how many processes"),
        ({"processes": 3, "gpus": [0, 1]}, "3 processes on 2 GPUs"),
        ({"gpus": [0, 0]}, "GPU 0 is named twice"),
        ({"gpus": [0, 1], "engine_gpus": [1]}, "GPU 1 is named twice"),
        ({"gpus": [0], "engine_gpus": [1]}, "inside the training processes"),
    ],
)
def test_what_does_not_fit_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        local(**options).plan(REQUEST)


@pytest.mark.parametrize(("given", "asked", "cards"), table(__file__, "given"))
def test_gpus_are_places_within_those_that_the_run_was_given(monkeypatch, given, asked, cards):
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    plan = local(gpus=asked).plan(REQUEST)
    assert plan.details["environment"] == {"CUDA_VISIBLE_DEVICES": cards}
    each = ", ".join(f"process {rank} on GPU {one}" for rank, one in enumerate(cards.split(",")))
    assert each in plan.lines


def test_an_engine_and_its_trainer_share_out_what_was_given(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,GPU-6,7")
    request = LaunchRequest(("run", "config.yaml"), "demo", engine_apart=True)
    environment = local(gpus=[0, 1], engine_gpus=["GPU-6", 3]).plan(request).details["environment"]
    assert environment == {"CUDA_VISIBLE_DEVICES": "4,5", "RLVR_ENGINE_GPUS": "GPU-6,7"}


@pytest.mark.parametrize(("given", "options", "words"), table(__file__, "refused"))
def test_gpus_that_were_not_given_are_refused(monkeypatch, given, options, words):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    with pytest.raises(ConfigError, match=words):
        local(**options).plan(REQUEST)


@pytest.mark.parametrize("odd", ["x", "GPU", "-1", "0x1", "gpu-1"])
def test_what_names_no_gpu_is_no_option(odd):
    with pytest.raises(ValueError, match="gpus"):
        local(gpus=[odd])


def test_the_plan_says_where_processes_train_that_name_no_gpu(monkeypatch):
    assert "each on the GPU of its number" in " ".join(local(processes=2).plan(REQUEST).lines)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,4,2")
    lines = local(processes=2).plan(REQUEST).lines
    assert "process 0 on GPU 6, process 1 on GPU 4" in lines
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "each on the CPU" in " ".join(local(processes=2).plan(REQUEST).lines)


@pytest.mark.parametrize(
    ("there", "options", "words"),
    [
        (0, {"gpus": [0, 1]}, "--gpus names 0,1, and torch sees no GPU of them here"),
        (1, {"gpus": [0, 1]}, "--gpus names 0,1, and torch sees 1 GPU of them here"),
        (2, {"processes": 3}, "3 processes are to train, and torch sees 2 GPUs"),
    ],
)
def test_gpus_that_are_not_there_are_an_error_and_no_run_on_the_cpu(
    monkeypatch, there, options, words
):
    import torch

    monkeypatch.setattr(os, "environ", dict(os.environ))
    if there or torch.cuda.is_available():
        monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    launcher = local(**options)
    with pytest.raises(MachineError, match=words):
        launcher.submit(launcher.plan(REQUEST))


def test_several_machines():
    plan = several(processes=4, nodes=2, node_rank=1, main_address="head").plan(REQUEST)
    assert plan.details["main_port"] == 29500
    assert plan.lines[:2] == (
        "8 processes train demo: 4 on this machine, which is 1 of 0..1",
        "they meet at head:29500",
    )
    with pytest.raises(ConfigError, match="where machine 0 is"):
        several(processes=4, nodes=2).plan(REQUEST)
    with pytest.raises(ConfigError, match="2 machines are 0 to 1"):
        several(processes=4, nodes=2, node_rank=2, main_address="head").plan(REQUEST)


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ({0: 2, 1: 2}, 2),
        ({0: LOST, 1: 4}, 4),
        ({0: -15, 1: 3}, 3),
        ({0: 130, 1: 130}, 130),
        ({0: 130, 1: -15}, 130),
        ({0: 130, 1: 2}, 2),
        ({0: LOST}, 1),
        ({0: -15}, 1),
    ],
)
def test_the_exit_code_is_that_of_the_process_at_fault(codes, code):
    assert exit_code(codes) == code


def test_a_killed_process_is_named():
    with pytest.raises(RunError, match="process 1 was ended by SIGKILL"):
        exit_code({0: LOST, 1: -9})


def test_the_interface_is_the_one_that_other_machines_reach(monkeypatch):
    """Gloo listens at what a machine's own name means: with Debian 127.0.1.1, reached by none."""
    ways = {"head": "127.0.1.1", "10.0.0.1": "10.0.0.2", processes._ANYWHERE: "192.168.1.5"}
    cards = {"lo": ["127.0.0.1", "::1"], "wlan0": ["192.168.1.5"], "eth1": ["10.0.0.2"]}
    monkeypatch.setattr(processes, "_own_address", ways.get)
    shown = {name: [SimpleNamespace(address=one) for one in found] for name, found in cards.items()}
    monkeypatch.setattr("psutil.net_if_addrs", lambda: shown)
    assert interface_to("10.0.0.1") == "eth1"
    assert interface_to("head") == "wlan0"
    with pytest.raises(MachineError, match="no way to 'tail'"):
        interface_to("tail")
    monkeypatch.setitem(ways, processes._ANYWHERE, None)  # a machine on no network
    assert interface_to("head") == "lo"


def test_machines_that_do_not_meet_end_with_a_word(monkeypatch):
    monkeypatch.setattr(processes, "_MEETING", 1)
    for name in ("GLOO_SOCKET_IFNAME", "PYTHONUNBUFFERED", "TORCH_CPP_LOG_LEVEL"):
        monkeypatch.setenv(name, "lo")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = several(processes=1, nodes=2, node_rank=1, main_address="127.0.0.1", main_port=port)
    with pytest.raises(MachineError, match=f"2 machines did not meet at 127.0.0.1:{port}"):
        launcher.submit(launcher.plan(REQUEST))
