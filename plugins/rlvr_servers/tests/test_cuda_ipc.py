"""Transport cuda-ipc: a buffer on the GPU that two processes share."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch

from rlvr_core.api import MachineError, NoConfig
from rlvr_core.engines.child.shared_weights import Outgoing
from rlvr_servers.cuda_ipc import CudaIpc, read_tensors, room, write_tensors

TENSORS = {
    "embedding": torch.arange(15, dtype=torch.float32).view(5, 3) / 7,
    "a scalar": torch.tensor(2.5, dtype=torch.bfloat16),
    "nothing": torch.empty(0, 4),
    "bias": torch.arange(7, dtype=torch.float16) - 3,
    "counts": torch.arange(9, dtype=torch.int64) * 10**12,
}
"""No size is a multiple of the alignment."""

RECEIVER = """
import pickle, sys, torch
from rlvr_core.api import NoConfig
from rlvr_servers.cuda_ipc import CudaIpc
transport = CudaIpc(NoConfig())
for line in sys.stdin:
    found = {}
    transport.receive(pickle.loads(bytes.fromhex(line)), found.update, 0)
    sums = {name: one.cpu().double().sum().item() for name, one in found.items()}
    print(pickle.dumps(sums).hex(), flush=True)
transport.close()
"""


class Link:
    """Keeps what is delivered."""

    receivers, members, remote_hosts = 1, ("child",), ()

    def deliver(self, message):
        self.message = message


class Receiver:
    """A process that receives."""

    def __init__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", RECEIVER], text=True, **pipes)

    def sums(self, message):
        self.process.stdin.write(pickle.dumps(message).hex() + "\n")
        self.process.stdin.flush()
        return pickle.loads(bytes.fromhex(self.process.stdout.readline()))


def test_parts_of_a_buffer_hold_every_bit_and_do_not_overlap():
    buffer = torch.empty(sum(room(one) for one in TENSORS.values()), dtype=torch.uint8)
    places = write_tensors(buffer, TENSORS.items())
    assert [offset for *_, offset in places] == [0, 64, 128, 128, 192]
    assert buffer.numel() == 64 + 64 + 0 + 64 + 128
    found = dict(read_tensors(buffer, places))
    assert found.keys() == TENSORS.keys()
    for name, one in TENSORS.items():
        assert torch.equal(found[name], one)
        assert found[name].dtype == one.dtype


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_trainer_without_a_gpu_is_told_so():
    with pytest.raises(MachineError, match="needs the trained model on a GPU, and there is none"):
        CudaIpc(NoConfig()).send(Outgoing(lambda: iter([("a", torch.ones(3))])), Link())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_an_engine_without_the_gpu_is_told_so():
    message = {"handle": "", "gpu": "GPU-1", "places": []}
    with pytest.raises(MachineError, match=r"trainer's GPU \(GPU-1\); its process has none"):
        CudaIpc(NoConfig()).receive(message, {}.update, 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_another_process_reads_what_was_sent_last_and_so_does_one_started_later():
    sent = {name: one.cuda() for name, one in TENSORS.items()}
    transport, link = CudaIpc(NoConfig()), Link()
    first = Receiver()
    for factor in (1, 2, 3):
        now = {name: one * factor for name, one in sent.items()}
        transport.send(Outgoing(lambda now=now: iter(now.items())), link)
        expected = {name: one.cpu().double().sum().item() for name, one in now.items()}
        assert first.sums(copy.deepcopy(link.message)) == expected
    first.process.kill()
    assert Receiver().sums(link.message) == expected
    transport.close()
