"""What the processes of a job find out about their machines before the model is loaded."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from rlvr_core.api import MachineError
from rlvr_core.api.services import LOST, ToldElsewhereError
from rlvr_core.builtin.jobs import processes
from rlvr_core.builtin.jobs.inside import check, facts, wheels
from rlvr_core.builtin.jobs.inside.compare import judge
from rlvr_core.builtin.jobs.inside.facts import Facts, values_of
from rlvr_core.builtin.jobs.inside.link import (
    Link,
    device_here,
    judge_link,
    nccl_log,
    transports,
)

COMPILER = shutil.which("cc") or shutil.which("gcc")

# get_arch_list() of torch 2.11.0+cu128, 2.11.0+cu126 and 2.7.1+cu128: pytorch/pytorch#182250
CU128 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
CU126 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
PORTABLE = (*CU128, "compute_120")

PROC = """\
NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024
GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)
"""
PROC_OPEN = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (dvs-builder)
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""


def compiled(folder, name, source, *words):
    if COMPILER is None:
        pytest.skip("needs a C compiler")
    (folder / "source.c").write_text(source)
    command = [COMPILER, "-shared", "-fPIC", "-o", str(folder / name), str(folder / "source.c")]
    subprocess.run([*command, *words], check=True)
    return folder / name


def driver(folder, number, result=0):
    source = f"int cuDriverGetVersion(int *found) {{ *found = {number}; return {result}; }}"
    return str(compiled(folder, "libcuda.so.1", source))


@pytest.mark.parametrize(
    ("number", "result", "cuda"),
    [(12020, 0, (12, 2)), (13000, 0, (13, 0)), (11080, 0, (11, 8)), (0, 0, None), (12020, 3, None)],
)
def test_the_drivers_own_library_says_which_cuda_it_speaks(number, result, cuda, tmp_path):
    assert wheels.driver_cuda(driver(tmp_path, number, result)) == cuda


def test_a_machine_without_a_driver(tmp_path):
    assert wheels.driver_cuda(str(tmp_path / "libcuda.so.1")) is None
    assert wheels.driver_number(tmp_path / "version") == ""


@pytest.mark.parametrize(("text", "number"), [(PROC, "535.183.01"), (PROC_OPEN, "570.133.20")])
def test_the_number_of_the_driver(text, number, tmp_path):
    (tmp_path / "version").write_text(text)
    assert wheels.driver_number(tmp_path / "version") == number


@pytest.mark.parametrize(
    ("driver", "built_for", "fault"),
    [
        ((12, 8), "13.0", True),  # the error of torch then: "too old (found version 12080)"
        ((11, 8), "12.6", True),
        ((12, 2), "12.8", False),  # within a major version a driver may be older
        ((13, 0), "12.8", False),
        (None, "13.0", False),
    ],
)
def test_a_driver_may_not_be_of_an_older_major_version(driver, built_for, fault):
    found = wheels.too_old(driver, "torch 2.11.0", built_for)
    assert bool(found) is fault
    if fault:
        assert f"CUDA {driver[0]}.{driver[1]} at most" in found[0]
        assert {"13.0": "580.65", "12.6": "525.60"}[built_for] in found[1]


@pytest.mark.parametrize(
    ("capability", "built_for", "works"),
    [
        ((7, 0), CU128, False),  # V100: as in the issue
        ((7, 0), CU126, True),
        ((8, 9), CU128, True),  # L4: code of sm_86 runs on it
        ((12, 0), CU126, False),  # RTX 5090 with CUDA 12.6
        ((12, 1), CU128, True),
        ((10, 3), CU128, True),
        ((13, 0), CU128, False),
        ((13, 0), PORTABLE, True),  # compiled on the card
        ((9, 0), ("sm_90a",), True),
        ((10, 3), ("sm_100a",), False),
        ((10, 3), ("sm_100f",), True),
        ((8, 0), ("sm_86",), False),
        ((8, 0), (), True),
    ],
)
def test_which_cards_the_architectures_of_a_wheel_run_on(capability, built_for, works):
    assert wheels.runs_on(capability, built_for) is works


def test_what_vllm_is_built_for_is_read_without_importing_it(tmp_path, monkeypatch):
    compiled(tmp_path, "libcudart.so.13", "int cudaThere(void) { return 0; }")
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('libcudart.so.13')")
    more = (f"-L{tmp_path}", "-l:libcudart.so.13", "-Wl,--no-as-needed")
    source = "int cudaThere(void); int there(void) { return cudaThere(); }"
    library = compiled(package, "_C.abi3.so", source, *more)
    compiled(package, "_C_stable_libtorch.abi3.so", "int other(void) { return 0; }")
    info = tmp_path / "vllm-0.23.0.dist-info"
    info.mkdir()
    needs = "Requires-Dist: torch==2.11.0\nRequires-Dist: torchvision==0.26.0\n"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: 0.23.0\n{needs}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    importlib.invalidate_caches()
    assert wheels.runtime_of(library) == "13"
    assert wheels.vllm_built() == ("0.23.0", "13", "2.11.0")


def test_gpus_that_torch_cannot_see_for_an_old_driver_are_refused_with_the_reason(monkeypatch):
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr(processes, "driver_cuda", lambda: (12, 4))
    details = {"processes": 1, "environment": {processes.VISIBLE: "0"}}
    with pytest.raises(MachineError) as error:
        processes._check_gpus(details)
    told = error.value.complaints[0]
    assert "sees no GPU of them here: the driver speaks CUDA 12.4 at most" in told.what
    assert "580.65" in told.remedy[0]


class Card:
    """torch.cuda of a machine with two H100; ``taken`` is the device that was chosen."""

    def __init__(self, monkeypatch, build="12.8"):
        said = {
            "is_available": lambda: True,
            "device_count": lambda: 2,
            "get_device_name": lambda index: f"H100 number {index}",
            "get_device_capability": lambda index: (9, 0),
            "get_arch_list": lambda: list(CU128),
            "set_device": lambda index: setattr(self, "taken", index),
            "current_device": lambda: self.taken,
        }
        for name, call in said.items():
            monkeypatch.setattr(f"torch.cuda.{name}", call)
        monkeypatch.setattr("torch.version.cuda", build)
        monkeypatch.setattr(facts, "driver_cuda", lambda: (12, 8))
        monkeypatch.setattr(facts, "driver_number", lambda: "570.133.20")
        monkeypatch.setattr(facts, "vllm_built", lambda: ("0.23.0", "12", "2.11.0"))


def resolved(engine="vllm"):
    run, chosen = SimpleNamespace(mirror=None), SimpleNamespace(use=engine)
    return SimpleNamespace(config=SimpleNamespace(run=run, engine=chosen))


def test_a_process_looks_at_its_own_card_and_takes_no_other(monkeypatch):
    card = Card(monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in {"LOCAL_RANK": "1", "RANK": "5", "GROUP_RANK": "2"}.items():
        monkeypatch.setenv(name, value)
    found = facts.facts_here(resolved())
    assert (found.rank, found.machine, found.first) == (5, 2, False)
    assert (found.gpu, found.capability, card.taken) == ("H100 number 1", (9, 0), 1)
    assert (found.cuda, found.driver, found.archs) == ("12.8", (12, 8), CU128)
    assert device_here() == torch.device("cuda", 1)
    monkeypatch.setenv("LOCAL_RANK", "2")  # one more than there are cards
    monkeypatch.setattr(facts, "driver_cuda", lambda: None)
    beyond = facts.facts_here(resolved())
    assert (beyond.gpu, beyond.capability, beyond.driver, card.taken) == ("", (), (), 1)


def test_the_first_process_looks_at_the_machine_and_a_hidden_card_needs_no_driver(monkeypatch):
    Card(monkeypatch)
    for name in ("LOCAL_RANK", "RANK", "GROUP_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    found = facts.facts_here(resolved())
    assert found.vllm == ("0.23.0", "12", "2.11.0")
    assert found.scratch[1] == ""
    assert found.scratch_free > 0
    assert (found.code, found.config) == ({}, {})  # nobody to compare with
    assert facts.facts_here(resolved("auto")).vllm
    assert facts.facts_here(resolved("transformers")).vllm == ()
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.version.cuda", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    hidden = facts.facts_here(resolved())
    assert (hidden.gpu, hidden.capability, hidden.driver, hidden.vllm) == ("", (), (), ())
    assert device_here() == torch.device("cpu")


# -- comparing -------------------------------------------------------------------------------------

H100 = Facts(
    rank=0,
    machine=0,
    host="a0",
    first=True,
    cuda="12.8",
    torch="torch 2.11.0+cu128",
    driver=(12, 8),
    driver_number="570.133.20",
    gpu="NVIDIA H100 80GB HBM3",
    capability=(9, 0),
    archs=CU128,
    versions={"python": "3.12", "torch": "2.11.0"},
    code={"rlvr_core": "aa", "rlvr_math": "bb"},
    config={"train.lr": "11", "train.steps": "22"},
    shared_memory=64 << 30,
    scratch=("/tmp", ""),
    scratch_free=64 << 30,
)


def on(machine, **changed):
    """The first process of another machine, two processes each."""
    return replace(H100, rank=2 * machine, machine=machine, host=f"a{machine}", **changed)


def second(first, **changed):
    return replace(
        first, rank=first.rank + 1, first=False, code={}, config={}, versions={}, **changed
    )


def bad(given):
    return [one for one in judge(given) if not one.good]


def test_machines_that_are_alike_and_fit_have_no_complaint():
    alike = [H100, second(H100), on(1), second(on(1))]
    found = judge([Facts.of_json(one.as_json()) for one in alike])
    assert all(one.good for one in found)
    assert found[0].line() == (
        "2 machines, 4 processes; torch 2.11.0+cu128, CUDA 12.8; driver 570.133.20, CUDA 12.8; "
        "NVIDIA H100 80GB HBM3"
    )


def test_one_machine_with_an_old_driver_is_one_complaint_that_names_it():
    old = on(2, driver=(11, 8), driver_number="520.61.05")
    (one,) = bad([H100, second(H100), on(1), second(on(1)), old, second(old)])
    assert (one.good, one.where) == (False, "machine 2 (a2)")
    assert "CUDA 11.8 at most" in one.what
    assert "520.61.05" in one.what
    assert "12.8" in one.what
    assert "525.60" in one.remedy[0]


def test_a_fault_of_all_machines_is_told_once():
    old = [replace(one, driver=(11, 8)) for one in (H100, on(1), on(2))]
    (one,) = bad(old)
    assert one.where == "all 3 machines"


def test_a_card_that_the_wheel_has_no_code_for():
    v100 = on(1, gpu="Tesla V100-SXM2-16GB", capability=(7, 0))
    one, _ = bad([H100, v100])  # and that there are two kinds
    assert one.good is False
    assert "compute capability 7.0" in one.what
    assert "sm_75" in one.what


def test_an_older_minor_version_is_a_warning():
    (one,) = bad([replace(H100, driver=(12, 2))])
    assert one.good is None
    assert one.line().startswith("warning: machine 0 (a0): the driver's CUDA, 12.2, is older")


def test_a_machine_that_is_to_train_on_its_cpu_needs_no_driver():
    assert not bad([replace(H100, driver=(), gpu="", capability=())])
    cpu = {"cuda": "", "torch": "torch 2.13.0+cpu", "archs": (), "capability": (), "gpu": ""}
    assert not bad([replace(H100, driver=(11, 8), **cpu)])


def test_all_processes_have_a_gpu_or_none_has():
    blind = {"gpu": "", "capability": ()}
    (one,) = bad([H100, second(H100), on(1), second(on(1), **blind)])
    assert one.good is False
    assert (one.what[:27], one.where) == ("1 of 4 processes have no GP", "machine 1 (a1)")
    assert not bad([replace(H100, **blind), on(1, **blind)])
    (mixed,) = bad([H100, second(H100), on(1, gpu="NVIDIA A100-SXM4-80GB", capability=(8, 0))])
    assert mixed.good is None
    assert mixed.what == "cards differ: 1 x NVIDIA A100-SXM4-80GB, 2 x NVIDIA H100 80GB HBM3"


def test_vllm_against_torch_and_driver():
    (one,) = bad([replace(H100, vllm=("0.23.0", "13", ""))])
    assert one.good is False
    assert "vllm 0.23.0 is built for CUDA 13" in one.what
    cuda13 = replace(H100, driver=(13, 0), vllm=("0.23.0", "13", "2.10.0"))
    linked, built = bad([cuda13])
    assert linked.good is None
    assert "linked with CUDA 13" in linked.what
    assert built.good is None
    assert built.remedy == ("pip install torch==2.10.0",)
    assert not bad([replace(H100, vllm=("0.23.0", "12", "2.11.0"))])
    assert not bad([replace(H100, vllm=("", "", ""))])


def test_other_code_config_and_versions_are_named():
    other = on(
        1,
        code={"rlvr_core": "aa", "rlvr_math": "cc"},
        config={"train.lr": "12", "train.steps": "22", "train.seed": "1"},
        versions={"python": "3.12", "torch": "2.10.0"},
    )
    versions, code, config = bad([H100, on(2), other])
    assert {one.good for one in (versions, code, config)} == {False}
    assert {one.where for one in (versions, code, config)} == {"machine 1 (a1)"}
    assert "torch 2.10.0 (there 2.11.0)" in versions.what
    assert "rlvr_math" in code.what
    assert "rlvr_core" not in code.what
    assert "train.lr, train.seed" in config.what


def test_places_of_a_machine():
    (full,) = bad([H100, on(1, scratch_free=1 << 20)])
    assert full.good is None
    assert full.where == "machine 1 (a1)"
    assert "TMPDIR" in full.remedy[0]
    (shut,) = bad([H100, on(1, scratch=("/tmp", "Read-only file system"))])
    assert shut.good is False
    assert "Read-only file system" in shut.what
    (docker,) = bad([replace(H100, shared_memory=64 << 20)])  # docker's default
    assert docker.good is None
    assert docker.what.startswith("0.06 GiB")
    assert "shm" in docker.remedy[0]
    (store,) = bad([H100, on(1, store="no permission")])
    assert store.good is None
    assert "no permission" in store.what


def test_values_are_compared_by_hash_and_paths_by_their_last_name():
    here = {"run": {"dir": "/a/runs"}, "model": {"path": "/a/m"}, "use": ["x", {"k": "secret"}]}
    there = {"run": {"dir": "/b/runs2"}, "model": {"path": "/b/m"}, "use": ["x", {"k": "other"}]}
    ours, theirs = dict(values_of(here)), dict(values_of(there))
    assert sorted(ours) == ["model.path", "use.0", "use.1.k"]
    assert [key for key in ours if ours[key] != theirs[key]] == ["use.1.k"]
    assert "secret" not in json.dumps(ours)


# -- telling each other ----------------------------------------------------------------------------


def all_at_once(store, given, world, seconds):
    """What ``exchange`` does in each process; a thread and a client of the store for each."""
    results = {}

    def one(mine):
        client = dist.TCPStore("127.0.0.1", store.port, is_master=False)
        try:
            results[mine.rank] = check.exchange(client, mine, world, seconds)
        except Exception as error:
            results[mine.rank] = error

    for mine in given:  # they have all come, however busy the machine is
        store.set(f"rlvr/machines/facts/{mine.rank}", mine.as_json())
    threads = [threading.Thread(target=one, args=(mine,)) for mine in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(check, "_WORDS", 0.2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def test_process_0_compares_and_all_learn_what_it_found(store):
    four = [H100, second(H100), on(1, code={"rlvr_core": "zz"}), second(on(1))]
    results = all_at_once(store, four, 4, 60)
    assert sorted(results) == [0, 1, 2, 3]
    assert results[0] == judge(four)
    assert all(results[rank] == results[0] for rank in (1, 2, 3))
    assert [one.check for one in results[0] if one.good is False] == ["code"]


def test_a_process_that_never_comes_is_named_after_the_deadline(store, monkeypatch):
    monkeypatch.setattr(check, "_WORDS", 60.0)  # the others wait for process 0
    results = all_at_once(store, [H100, second(H100), on(1)], 4, 0.5)
    (one,) = results[0]
    assert one.good is False
    assert "process 3 (machine 1) did not come" in one.what
    assert "within 0.5 s" in one.what
    assert results[1] == results[2] == results[0]


def test_where_process_0_never_comes_the_first_that_is_there_tells(store):
    results = all_at_once(store, [second(H100), on(1)], 4, 0.5)
    assert isinstance(results[1], MachineError)
    assert "process 0 did not come" in str(results[1])
    assert isinstance(results[2], ToldElsewhereError)
    assert results[2].exit_code == LOST


def test_what_is_wrong_ends_the_job_by_the_word_of_process_0(monkeypatch):
    monkeypatch.setattr(check, "_WORDS", 0.0)
    found = judge([H100, on(1, driver=(11, 8)), on(2, code={"rlvr_core": "zz"})])
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(MachineError) as error:
        check.refuse_wrong(found, alone=False)
    assert [one.where for one in error.value.complaints] == ["machine 1 (a1)", "machine 2 (a2)"]
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ToldElsewhereError):
        check.refuse_wrong(found, alone=False)
    check.refuse_wrong(found, alone=True)  # then they are the answer


# -- the link --------------------------------------------------------------------------------------

# lines of NCCL, from NVIDIA/nccl#952, NVIDIA/nccl#1538, NVIDIA/nccl#527 and aws-ofi-nccl#715
SOCKETS = """\
c:919:1150 [0] NCCL INFO Channel 01/0 : 8[0] -> 15[7] via P2P/IPC/read
c:926:1151 [7] NCCL INFO Channel 03/0 : 15[7] -> 6[6] [send] via NET/Socket/3
"""
CUMEM = "w-0:5663:5809 [0] NCCL INFO Channel 04/0 : 0[0] -> 7[7] via P2P/CUMEM\n"
EFA = """\
ip-1:416481:416522 [3] NCCL INFO Channel 03/0 : 19[201d0] -> 26[201c0] [send] via NET/AWS Libfabric/0/GDRDMA
algo-1:18060:20786 [3] NCCL INFO Channel 05/1 : 3[3] -> 11[3] [send] via NET/AWS Libfabric/1(2)/GDRDMA/Shared
algo-1:18060:18148 [3] NCCL INFO NET/OFI Global registrations supported
"""  # noqa: E501
SHM = "h:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"


@pytest.mark.parametrize(
    ("log", "ways"),
    [
        (SOCKETS, ["NET/Socket", "P2P/IPC"]),
        (CUMEM, ["P2P/CUMEM"]),
        (EFA, ["NET/AWS Libfabric/GDRDMA"]),
        (SHM, ["SHM"]),
        ("h:1:2 [0] NCCL INFO Using network Socket\n", []),
    ],
)
def test_which_transport_nccl_says_it_took(log, ways):
    assert transports(log) == ways


def test_the_log_of_nccl_is_read_and_its_variables_are_gone_afterwards(monkeypatch):
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"):
        monkeypatch.delenv(name, raising=False)
    with nccl_log(True) as log:
        assert log() == ""
        assert os.environ["NCCL_DEBUG"] == "INFO"
        Path(os.environ["NCCL_DEBUG_FILE"]).write_text(SOCKETS)
        assert transports(log()) == ["NET/Socket", "P2P/IPC"]
    assert not [name for name in os.environ if name.startswith("NCCL_DEBUG")]
    monkeypatch.setenv("NCCL_DEBUG", "WARN")  # the user's own
    with nccl_log(True) as log:
        assert (log(), os.environ["NCCL_DEBUG"]) == ("", "WARN")
        assert "NCCL_DEBUG_FILE" not in os.environ
    assert os.environ["NCCL_DEBUG"] == "WARN"
    monkeypatch.delenv("NCCL_DEBUG")
    with nccl_log(False):
        assert "NCCL_DEBUG" not in os.environ


def link(**changed):
    made = Link(4, 2, 64 << 20, 0.1, "nccl", ("NET/IB/GDRDMA",), (0.0, 0.01, -0.02, 0.0))
    return replace(made, **changed)


def test_the_figures_of_a_link():
    # in a ring each of 4 sends 2 * 3/4 of 67,108,864 bytes in 0.1 s: 1.0066 GB/s
    assert link().rate == pytest.approx(1.00663296e9)
    reduced, clocks = judge_link(link())
    assert reduced.good
    assert clocks.good
    assert "64 MiB over 4 processes: 1.01 GB/s by nccl (NET/IB/GDRDMA)" in reduced.what
    assert "would take 6 s a step" in reduced.what  # 4e9 bytes / 67.1e6 * 0.1 s
    assert clocks.what == "within 0.020 s of that of process 0"


def test_a_slow_link_sockets_and_clocks_apart_are_warnings():
    slow = link(seconds=2.0, ways=("NET/Socket", "P2P/IPC"), apart=(0.0, 0.1, -7.5, 0.2))
    found = {one.check: one for one in judge_link(slow)}
    assert {one.good for one in found.values()} == {None}
    assert "0.0503 GB/s" in found["all-reduce"].what
    assert "SOCKET_IFNAME" in found["all-reduce"].remedy[0]
    assert "TCP" in found["transport"].what
    assert "process 2 is -7.5 s" in found["clocks"].what
    alone = {one.check: one.good for one in judge_link(replace(slow, machines=1))}
    assert alone == {"all-reduce": True, "clocks": None}


PROGRAM = """\
import json, os, sys
from datetime import timedelta
import torch.distributed as dist
from rlvr_core.api.services import Ranks
from rlvr_core.builtin.jobs.inside import check, link

def tell(rank, *words):  # gloo writes to the output, too
    with open(f"{sys.argv[1]}-{rank}", "a") as file:
        file.write(json.dumps([rank, *words]) + "\\n")

def process(rank):
    store = dist.FileStore(sys.argv[1], 3)
    group = dist.PrefixStore("group", store)
    dist.init_process_group("gloo", store=group, rank=rank, world_size=3)
    ranks, place = Ranks(rank, 3), link.device_here()
    found = link.within(100, lambda: link.measure(ranks, 3, 0.2, place))
    told = [found.size, found.seconds, found.rate, found.backend, found.machines]
    tell(rank, *told)
    if rank == 2:
        store.wait(["told/0", "told/1"], timedelta(seconds=100))
        return
    store.set(f"rlvr/machines/linking/{rank}", b"1")
    assert link.within(1.0, lambda: link.measure(ranks, 3, 0.0, place)) is None
    tell(rank, check.unlinked(store, 3, 1.0).complaints[0].what)
    store.set(f"told/{rank}", b"1")

children = []
for rank in range(3):
    children.append(os.fork())
    if children[-1] == 0:
        try:
            process(rank)
        finally:
            os._exit(0)
for child in children:
    os.waitpid(child, 0)
"""


def test_three_gloo_processes_measure_and_name_the_one_that_does_not_come(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "store")]
    subprocess.run(command, timeout=300, check=True)
    told = [path.read_text() for path in sorted(tmp_path.glob("store-?"))]
    lines = [json.loads(line) for text in told for line in text.splitlines()]
    figures = {rank: rest for rank, *rest in lines if len(rest) > 1}
    size, seconds, rate, backend, machines = figures[0]
    assert (backend, machines) == ("gloo", 3)
    assert rate == pytest.approx(4 / 3 * size / seconds)  # a ring of three
    assert figures[0][:3] == figures[1][:3] == figures[2][:3]  # the slowest, and as often
    what = "process 2 (machine 2) did not come to an all-reduce within 1 s"
    assert sorted(one for one in lines if len(one) == 2) == [[0, what], [1, what]]
