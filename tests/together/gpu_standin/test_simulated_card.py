"""What code decides where torch sees a GPU, and nothing has to be computed on one."""

import threading
from types import SimpleNamespace

import pytest
import torch

from rlvr_core.api import ConfigError, MachineError, RunError

GIB = 2**30


@pytest.fixture
def card(monkeypatch):
    """One H100, for whoever asks torch."""
    cuda = torch.cuda
    properties = SimpleNamespace(name="NVIDIA H100 80GB HBM3", total_memory=80 * GIB)
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    monkeypatch.setattr(cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda, "get_device_properties", lambda *_: properties)
    monkeypatch.setattr(cuda, "max_memory_allocated", lambda *_: 70 * GIB)
    return monkeypatch


# -- vLLM ------------------------------------------------------------------------------------------


def asleep(device, *, level=1, source="the trainer's", queue=()):
    """How an engine went to sleep: the level that vLLM was given, and what the engine remembers."""
    from rlvr_core.engines.vllm.engine import VllmEngine

    levels = []
    running = SimpleNamespace(
        device=torch.device(device),
        queue=queue,
        source=source,
        llm=SimpleNamespace(sleep=lambda level: levels.append(level)),
        asleep=False,
        without_weights=False,
    )
    engine = SimpleNamespace(
        _ready=lambda: running, config=SimpleNamespace(sleep=True, sleep_level=level)
    )
    VllmEngine.sleep(engine)
    return levels, running.asleep, running.without_weights


def test_an_engine_sleeps_on_a_gpu_and_at_level_2_only_if_weights_come_again():
    assert asleep("cpu") == ([], False, False)
    assert asleep("cuda") == ([1], True, False)
    assert asleep("cuda", level=2) == ([2], True, True)
    assert asleep("cuda", level=2, source=None) == ([1], True, False)
    with pytest.raises(RunError, match="1 completions unfinished"):
        asleep("cuda", queue=["one"])


def server_config(**options):
    from rlvr_servers.engine import VllmServerEngine

    return VllmServerEngine.Config(**options)


def test_weights_go_to_servers_over_nccl_where_there_is_a_gpu_else_through_files(card):
    from rlvr_servers.engine import NCCL, chosen_transport

    unnamed = SimpleNamespace(transport=None)
    assert chosen_transport(server_config(), unnamed).target == NCCL.target
    named = SimpleNamespace(transport=NCCL)
    assert chosen_transport(server_config(), named) is NCCL
    card.setattr(torch.cuda, "is_available", lambda: False)
    assert chosen_transport(server_config(), unnamed).target != NCCL.target
    with pytest.raises(MachineError, match="transport nccl needs a GPU, and this process has none"):
        chosen_transport(server_config(), named)


def test_servers_without_gpus_of_their_own_are_refused_beside_a_trainer_that_has_one(card):
    from rlvr_servers.process import gpus_of

    for name in ("RLVR_ENGINE_GPUS", "CUDA_VISIBLE_DEVICES"):
        card.delenv(name, raising=False)
    with pytest.raises(MachineError, match="the vLLM servers have no GPU of their own"):
        gpus_of(server_config())
    card.setenv("RLVR_ENGINE_GPUS", "2,3")
    assert gpus_of(server_config()) == [["2"], ["3"]]
    card.delenv("RLVR_ENGINE_GPUS")
    card.setattr(torch.cuda, "is_available", lambda: False)
    assert gpus_of(server_config(servers=2)) == [[], []]


@pytest.mark.parametrize(
    ("dtype", "device", "passes"),
    [
        (torch.float32, "cpu", False),
        (torch.float32, "cuda", True),
        (torch.bfloat16, "cuda", True),
    ],
)
def test_a_gpu_may_round_float32_products_to_tf32(dtype, device, passes):
    """Engine and trainer differ by 2e-3 nats: more than float32 on a CPU, less than TF32."""
    from rlvr_core.engines.vllm.probe import check_probe

    def check(by):
        check_probe([-1.0, -2.0], [-1.0 + by, -2.0 - by], dtype, torch.device(device), 3)

    if passes:
        check(2e-3)
    else:
        with pytest.raises(RunError, match=r"disagree by 0\.002 nats"):
            check(2e-3)
    with pytest.raises(RunError, match="weight sync to version 3"):
        check(0.5)


class FakeSender:
    """vLLM's sender."""

    def __init__(self, log, error=None):
        self.log, self.error = log, error

    def send_weights(self):
        if self.error is not None:
            raise self.error
        self.log.append(("sent", threading.current_thread().name))

    def shutdown(self):
        self.log.append("shut down")


@pytest.fixture
def over_nccl(card):
    """A transport whose senders are listed, and what it did."""
    from rlvr_servers import nccl as transports

    log, errors = [], []
    card.setattr(torch.cuda, "current_device", lambda: 3)
    card.setattr(torch.cuda, "set_device", lambda device: log.append(("device", device)))
    card.setattr(torch.cuda, "synchronize", lambda: log.append("synchronized"))

    def connect(source, link):
        log.append(("connected", link.members))
        return FakeSender(log, errors.pop() if errors else None)

    card.setattr(transports, "_connect", connect)
    transport = transports.Nccl(transports.Nccl.Config(timeout=60))
    return transport, log, errors


def test_weights_are_sent_from_the_trainers_gpu_when_its_work_is_done(over_nccl):
    transport, log, _ = over_nccl
    link = SimpleNamespace(members=("a", "b"), deliver=log.append)
    sent = [("device", 3), "synchronized", ("sent", "nccl-weights")]
    transport.send(SimpleNamespace(), link)
    assert log == [sent[0], ("connected", ("a", "b")), *sent[1:]]
    log.clear()
    transport.send(SimpleNamespace(), link)
    assert log == sent, "the same servers keep their group"
    log.clear()
    link.members = ("a", "c")
    transport.send(SimpleNamespace(), link)
    assert log == [
        *(sent[0], {"leave": True}, "shut down", ("connected", ("a", "c")), *sent[1:])
    ], "a group with a new member is a new group"
    log.clear()
    transport.close()
    assert log == ["shut down"]


def test_a_broadcast_that_fails_is_an_error_of_the_run(over_nccl):
    transport, _, errors = over_nccl
    errors.append(RuntimeError("ncclSystemError: unhandled"))
    with pytest.raises(RunError, match=r"over NCCL failed: .*ncclSystemError"):
        transport.send(SimpleNamespace(), SimpleNamespace(members=("a",)))


def test_a_server_on_a_cpu_is_refused_where_weights_go_over_nccl():
    from rlvr_servers.process import check_server

    context = SimpleNamespace(dtype=torch.bfloat16, max_model_len=100)
    facts = {"backend": "rlvr", "dtype": "bfloat16", "logprobs_mode": "processed_logprobs"}
    facts |= {"device": "cpu", "chunked_prefill": False, "max_model_len": 100}
    with pytest.raises(ConfigError, match="on a CPU, where NCCL does not reach"):
        check_server(context, SimpleNamespace(), True, "one", facts)


# -- an engine of a process of its own -------------------------------------------------------------


@pytest.mark.parametrize(("device", "threads"), [("cuda", 6), ("cpu", 3)])
def test_an_engine_takes_no_threads_of_a_trainer_on_a_gpu(device, threads, monkeypatch):
    from rlvr_core.rollout.ahead import ahead

    set_to = [6]
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    monkeypatch.setattr(ahead, "traits_of", lambda *_: SimpleNamespace(elsewhere=False))
    ahead.share_threads(SimpleNamespace(), torch.device(device))
    assert set_to[-1] == threads


# -- processes -------------------------------------------------------------------------------------


@pytest.fixture
def second_process(monkeypatch):
    """The second of two processes; returns what it joins by."""
    import accelerate

    found = []
    for name, value in {"RANK": 1, "LOCAL_RANK": 1, "WORLD_SIZE": 2, "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")

    def joined(**given):
        found.append(given)
        return SimpleNamespace(process_index=1, num_processes=2)

    monkeypatch.setattr(accelerate, "PartialState", joined)
    return found


@pytest.mark.parametrize(("seen", "backend"), [(True, "cpu:gloo,cuda:nccl"), (False, "gloo")])
def test_tensors_on_gpus_travel_by_nccl_and_the_rest_by_gloo(
    seen, backend, second_process, monkeypatch
):
    from rlvr_core.parallel.ranks import _meet

    monkeypatch.setattr(torch.cuda, "is_available", lambda: seen)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2 if seen else 0)
    ranks = _meet(60.0)
    assert (ranks.index, ranks.world) == (1, 2)
    (given,) = second_process
    assert (given["backend"], given["cpu"]) == (backend, not seen)


def test_more_processes_than_gpus_are_an_error_and_no_run_on_the_cpu(card, second_process):
    from rlvr_core.parallel.ranks import _meet

    with pytest.raises(MachineError, match="process 1 of this machine has no GPU: there are 1"):
        _meet(60.0)
    assert second_process == []


# -- a run's choices, and what is said -------------------------------------------------------------


def offload_faults(monkeypatch):
    """What is said against an offloaded reference of a single process."""
    from rlvr_core.parallel.offload import check_offload

    monkeypatch.delenv("WORLD_SIZE", raising=False)
    config = SimpleNamespace(
        model=SimpleNamespace(lora=None), train=SimpleNamespace(parallel="fsdp")
    )
    resolved = SimpleNamespace(config=config, where=lambda _: "run.yaml:3")
    try:
        check_offload(resolved)
    except ConfigError as error:
        return str(error)
    return ""


def test_a_reference_is_offloaded_from_a_gpu_alone(card):
    assert offload_faults(card) == ""
    card.setattr(torch.cuda, "is_available", lambda: False)
    assert "this run computes on the CPU" in offload_faults(card)


@pytest.mark.parametrize(("peak", "doubt"), [(70, False), (74, True)])
def test_the_doctor_sets_the_steps_peak_beside_the_card(card, peak, doubt):
    """0.92 of 80 GiB are 73.6."""
    from rlvr_doctor.examination import costs

    found = costs._memory(SimpleNamespace(memory=(2 * GIB, peak * GIB)))
    assert f"GPU {peak} of 80 GiB" in found.text
    assert (found.level != "ok") is doubt


def test_gpus_that_do_not_reach_each_other_are_counted(card):
    """Of three cards the first is alone, and in 4 of 6 ordered pairs."""
    from rlvr_doctor import gpu as checks

    card.setattr(torch.cuda, "device_count", lambda: 3)
    card.setattr(torch.cuda, "can_device_access_peer", lambda *pair: 0 not in pair)
    (found,) = checks.peers()
    assert found.text == "2 of 6 pairs reach each other's memory directly"
    assert found.level == "fail"


@pytest.mark.parametrize(
    ("shown", "there", "given"),
    [(None, 2, ["0", "1"]), ("", 0, []), ("4,5", 2, ["4", "5"]), ("4,5,9", 2, ["4", "5"])],
)
def test_runs_of_a_sweep_get_the_gpus_that_it_was_given(shown, there, given, monkeypatch):
    from rlvr_cluster.sweeps.processes import given_gpus

    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    if shown is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert given_gpus() == given


def test_a_receiver_computes_on_its_own_gpu(card):
    """It joins behind the trainer by its index, and what arrives lies on the GPU it has."""
    import sys

    from rlvr_servers import nccl as transports

    joined, taken = [], []
    group = SimpleNamespace(destroy=lambda: joined.append("destroyed"))
    folder = "vllm.distributed.weight_transfer"

    def join(*given):
        joined.append(given)
        return group

    common = SimpleNamespace(stateless_init_process_group=join)
    packed = SimpleNamespace(packed_nccl_broadcast_consumer=lambda **given: taken.append(given))
    for name, module in (("", None), (".nccl_common", common), (".packed_tensor", packed)):
        card.setitem(sys.modules, folder + name, module or SimpleNamespace())
    card.setattr(torch.cuda, "current_device", lambda: 1)
    transport = transports.Nccl(transports.Nccl.Config())
    tensors = {"names": ["w"], "dtype_names": ["bfloat16"], "shapes": [[2, 3]]}
    with pytest.raises(RuntimeError, match="no trainer has connected"):
        transport.receive({"tensors": tensors}, print, 0)
    assert taken == []
    join_by = {"master_address": "10.0.0.1", "master_port": 5, "rank_offset": 1, "world_size": 4}
    join_by |= {"packed_buffer_size_bytes": 7, "packed_num_buffers": 2}
    transport.receive({"join": join_by}, print, 2)
    assert joined == [("10.0.0.1", 5, 3, 4, 1)]
    transport.receive({"tensors": tensors}, print, 2)
    (given,) = taken
    assert given["device"] == torch.device("cuda", 1)
    assert (given["group"], given["src"], given["buffer_size_bytes"]) == (group, 0, 7)
    assert list(given["iterator"]) == [("w", ([2, 3], torch.bfloat16))]
    transport.receive({"leave": True}, print, 2)
    assert joined[1:] == ["destroyed"]
