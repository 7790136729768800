"""I: an engine in a process of its own on the trainer's card, by two transports.

The transports alone, of the weights of Qwen3-1.7B, and whole runs of a smaller model.
"""

from __future__ import annotations

import json
import pickle
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from rlvr_core.api import NoConfig
from rlvr_core.engines.child.shared_weights import Outgoing
from rlvr_core.engines.vllm.files import Files
from rlvr_servers.cuda_ipc import CudaIpc
from tests.together.gpu_kit.record import Record
from tests.together.gpu_kit.runs import begin, keep, metrics, words_of

STEPS = 3
SYNCS = 4
LAYER = [(2048, 2048), (1024, 2048), (1024, 2048), (2048, 2048), *[(6144, 2048)] * 3, (2048,)]
SHAPES = [(151_936, 2048), *(shape for _ in range(28) for shape in LAYER)]
"""Of Qwen3-1.7B, nearly."""
CHANGES = ["model.dtype=bfloat16", "train.max_staleness=1", "checkpoint.every=100"]
CHANGES += ["sampling.n=4", "train.prompts_per_step=8", "train.warmup_steps=1"]
RECEIVER = """
import pickle, sys, torch
from rlvr_core.api import NoConfig
from rlvr_servers.cuda_ipc import CudaIpc
from rlvr_core.engines.vllm.files import Files
kind, own = eval(sys.argv[1]), {}
transport = kind(Files.Config() if kind is Files else NoConfig())
torch.ones(1).cuda()
print("ready", flush=True)
for line in sys.stdin:
    found = {}
    transport.receive(pickle.loads(bytes.fromhex(line)), found.update, 0)
    for name, one in found.items():
        if name not in own:
            own[name] = torch.empty(one.shape, dtype=torch.bfloat16, device="cuda")
        own[name].copy_(one)
    torch.cuda.synchronize()
    print(sum(one.double().sum().item() for one in list(own.values())[::40]), flush=True)
"""


class Link:
    """Keeps what is delivered."""

    receivers, members, remote_hosts = 1, ("child",), ()

    def deliver(self, message: object) -> None:
        """Keep it."""
        self.message = message


def transports(record: Record) -> None:
    """Both transports, alone and in a run."""
    for kind in (Files, CudaIpc):
        record.attempt("I", kind.__name__, lambda kind=kind: alone(record, kind))
    from rlvr_core.testing.random_model import save_random_model

    place = record.folder / "work" / "ipc"
    place.mkdir(parents=True, exist_ok=True)
    sizes = {"hidden_size": 1024, "num_hidden_layers": 16, "intermediate_size": 3072}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 128}
    with torch.device("cuda"):
        save_random_model(place / "model", **sizes, **heads, initializer_range=0.02)
    torch.cuda.empty_cache()
    for transport in ("servers/cuda-ipc", "core/files"):
        record.attempt("I", transport, lambda name=transport: whole_run(record, name, place))


def alone(record: Record, kind: type[Files] | type[CudaIpc]) -> None:
    """Send float32 weights to a process that rounds them to bfloat16 on the card."""
    weights = {str(at): torch.full(shape, 0.5, device="cuda") for at, shape in enumerate(SHAPES)}
    transport: Files | CudaIpc = Files(Files.Config()) if kind is Files else CudaIpc(NoConfig())
    link, spent = Link(), []
    receiver = subprocess.Popen(
        [sys.executable, "-c", RECEIVER, kind.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert receiver.stdin is not None
    assert receiver.stdout is not None
    receiver.stdout.readline()
    right = True
    for sync in range(SYNCS):
        expected = sum(one.numel() for one in list(weights.values())[::40]) * (0.5 + sync)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        transport.send(Outgoing(lambda: iter(weights.items())), link)
        receiver.stdin.write(pickle.dumps(link.message).hex() + "\n")
        receiver.stdin.flush()
        right &= float(receiver.stdout.readline()) == expected
        spent.append(time.perf_counter() - begun)
        for one in weights.values():
            one.add_(1)
    receiver.kill()
    transport.close()
    gib = sum(one.nbytes for one in weights.values()) / 2**30
    note = f"{gib:.1f} GiB in float32; the first {spent[0]:.2f} s"
    name = f"{kind.__name__}: a sync of 1.7B weights"
    record.add("I", name, statistics.median(spent[1:]), "s", n=SYNCS - 1, ok=right, note=note)


def whole_run(record: Record, transport: str, place: Path) -> None:
    """A run, every guard on: its sync has a probe, and the engine's weights are read back."""
    mine = place / transport.rpartition("/")[2]
    mine.mkdir()
    shutil.copy(Path(__file__).with_name("vowels.py"), mine)
    engine = f"engine={{use: core/transformers, transport: {transport}}}"
    config = Path(__file__).with_name("wide.yaml")
    words = words_of(config, mine, str(place / "model"), STEPS, *CHANGES, engine)
    begun = time.monotonic()
    process = begin(words, mine)
    try:
        code = process.wait(timeout=150)
    except subprocess.TimeoutExpired:
        process.kill()
        code = -1
    said = keep(record, f"{transport}: {code}", mine)
    timings = list(mine.glob("*/traces/timing.jsonl"))
    lines = [json.loads(line) for file in timings for line in file.read_text().splitlines()]
    spent = [line["seconds"]["sync"] for line in lines if "sync" in line.get("seconds", {})]
    back = metrics(mine).get("sync/read_back", [])
    note = f"exit code {code} after {time.monotonic() - begun:.0f} s; {sum(back):.0f} syncs read "
    note += f"back; {said.count('warn')} lines warn"
    middle = statistics.median(spent) if spent else None
    ok = code == 0 and len(spent) >= STEPS - 1
    record.add("I", f"{transport}: sync in a run", middle, "s", n=len(spent), ok=ok, note=note)
