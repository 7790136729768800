"""``rlvr doctor --gpu``: what a machine's GPUs are, and plain words where there is none."""

import json
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner

from rlvr_doctor import gpu as checks
from rlvr_doctor.command import doctor

GIB = 2**30


def asked(*words):
    return CliRunner().invoke(doctor, ["--gpu", *words])


@pytest.mark.parametrize(
    ("cuda", "shown", "driver", "says", "remedy"),
    [
        (None, None, False, "built for CPUs", "install a CUDA build"),
        ("13.0", "", True, "CUDA_VISIBLE_DEVICES='' hides all", "unset it"),
        ("13.0", "-1", True, "CUDA_VISIBLE_DEVICES='-1' hides all", "unset it"),
        ("13.0", None, False, "no NVIDIA driver is installed", "--gpus all"),
        ("13.0", "0", True, "torch (CUDA 13.0) cannot use it", "nvidia-smi says which CUDA"),
    ],
)
def test_no_gpu_and_why(cuda, shown, driver, says, remedy, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(checks.shutil, "which", lambda _: "/bin/nvidia-smi" if driver else None)
    if shown is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    done = asked("--json")
    assert done.exit_code == 1
    (none,) = [one for one in json.loads(done.output)["checks"] if one["id"] == "GPU"]
    assert says in none["text"]
    assert remedy in none["remedy"]
    shown_to_people = asked()
    assert shown_to_people.exit_code == 1
    assert "none: " in shown_to_people.output


@pytest.fixture
def two_cards(monkeypatch):
    """Two H100s; the second is a slow one that somebody else uses."""
    free = {0: 78 * GIB, 1: 20 * GIB}
    speed = {0: 1.0, 1: 0.25}
    card = SimpleNamespace(name="NVIDIA H100 80GB HBM3", total_memory=79 * GIB)
    cuda = torch.cuda
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: 2)
    monkeypatch.setattr(cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(cuda, "mem_get_info", lambda device: (free[device.index], 79 * GIB))
    monkeypatch.setattr(cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(cuda, "can_device_access_peer", lambda *_: True)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(cuda.nccl, "version", lambda: (2, 27, 3))
    monkeypatch.setattr(checks, "_sdpa_kernels", lambda _: ["flash", "math"])
    there = torch.zeros(4)
    for name in ("zeros", "empty_like", "randn"):
        monkeypatch.setattr(torch, name, lambda *_, **__: there)
    # a copy of 2 GiB at 3.0 TB/s, then a product of 2 x 8192^3 at 700 TFLOP/s, on a good card
    times = [2 * GIB / 3.0e12, 2 * 8192**3 / 700e12]

    def seconds(act, device, often=5):
        done = calls.get(device.index, 0)
        calls[device.index] = done + 1
        return times[done] / speed[device.index]

    calls = {}
    monkeypatch.setattr(checks, "seconds", seconds)
    public = SimpleNamespace(bandwidth=3.35e12, peak=989e12)
    monkeypatch.setattr("rlvr_doctor.cards.card_named", lambda _: public)
    monkeypatch.setattr("rlvr_core.packing.attention_mask.flash_on", lambda _: True)


def test_what_is_measured_stands_beside_the_public_figures(two_cards):
    found = {one.id: one for one in checks.check_gpus()}
    assert found["NCCL"].text == "2.27.3"
    assert found["cuda:0"].text == "NVIDIA H100 80GB HBM3, 78.0 of 79.0 GiB are free"
    assert found["cuda:0: bandwidth"].text == "3 TB/s, 90% of the public 3.35"
    assert found["cuda:0: bfloat16 product"].text == "700 TFLOP/s, 71% of the public 989"
    assert found["cuda:0: bfloat16"].text == "compute capability 9.0, by hardware"
    assert found["between GPUs"].text.startswith("2 of 2 pairs reach")
    assert all(one.level == "ok" for name, one in found.items() if not name.startswith("cuda:1"))
    wrong = {name for name, one in found.items() if one.level == "fail"}
    assert wrong == {"cuda:1", "cuda:1: bandwidth", "cuda:1: bfloat16 product"}
    assert "another process holds the rest" in found["cuda:1"].remedy


def test_a_check_that_breaks_is_a_finding_and_the_next_goes_on(two_cards, monkeypatch):
    def broken(_):
        raise RuntimeError("CUDA error: an illegal memory access\nlong text")

    monkeypatch.setattr(torch.cuda, "mem_get_info", broken)
    found = {one.id: one for one in checks.check_gpus()}
    assert found["memory"].text == "broke: RuntimeError: CUDA error: an illegal memory access"
    assert found["memory"].level == "fail"
    assert found["cuda:0: bandwidth"].level == "ok"


def test_small_shared_memory_is_wrong(monkeypatch):
    usage = SimpleNamespace(total=64 << 20, free=2**20)
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: usage)
    (found,) = checks.machine()
    assert found.level == "fail"
    assert "--shm-size" in found.remedy


def test_a_config_and_the_machine_are_two_questions():
    done = CliRunner().invoke(doctor, ["--gpu", "run.yaml"])
    assert done.exit_code == 2
    assert "give one of the two" in done.output
