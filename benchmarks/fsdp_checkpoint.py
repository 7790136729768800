"""Host memory and time of a checkpoint under train.parallel: fsdp, by shards and gathered.

    python benchmarks/fsdp_checkpoint.py                     # 0.27B parameters, 4 processes, gloo
    python benchmarks/fsdp_checkpoint.py --layers 4 --hidden 256 --vocabulary 1000    # seconds

A model of random weights, its float32 masters and AdamW's moments are split over the processes. In
turns, each way is used to write a checkpoint and to read it: gathered, as of an adapter, where
process 0 holds and writes everything, and in shards. A step waits for the copy alone; the files are
written beside it. Anonymous memory is counted, as it grows over what a process had before.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

from rlvr_core.api import NoConfig
from rlvr_core.config.model import TrainSection
from rlvr_core.parallel.model import ParallelModel
from rlvr_core.parallel.ranks import Ranks, joined
from rlvr_core.record.checkpoints import CheckpointStore
from rlvr_core.step import checkpoint
from rlvr_core.step.optim import AdamW, Constant, Optimizer

LAUNCH = (sys.executable, "-m", "torch.distributed.run", "--standalone")
MIB = 2**20


def anonymous() -> int:
    """Bytes of anonymous memory of this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def measured(act: Callable[[], Any]) -> tuple[float, float]:
    """Do something; the seconds, and the MiB by which memory grew at most."""
    gc.collect()
    base = most = anonymous()
    done = threading.Event()

    def look() -> None:
        nonlocal most
        while not done.wait(0.002):
            most = max(most, anonymous())

    thread = threading.Thread(target=look)
    thread.start()
    begun = time.perf_counter()
    try:
        act()
    finally:
        seconds = time.perf_counter() - begun
        done.set()
        thread.join()
    return seconds, (max(most, anonymous()) - base) / MIB


def policy(given: argparse.Namespace, ranks: Ranks) -> tuple[Any, Optimizer]:
    """A sharded policy, and an optimizer that has taken a step."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=given.vocabulary,
            hidden_size=given.hidden,
            intermediate_size=4 * given.hidden,
            num_hidden_layers=given.layers,
            num_attention_heads=max(1, given.hidden // 64),
            num_key_value_heads=max(1, given.hidden // 256),
            tie_word_embeddings=True,
        )
    )
    parallel = ParallelModel(ranks, "fsdp")
    parallel.add(model, trained=True, temperature=1.0, autocast_dtype=torch.bfloat16)
    train = TrainSection(steps=2, parallel="fsdp")
    optimizer = Optimizer(model, train, torch.bfloat16, AdamW(AdamW.Config()), Constant(NoConfig()))
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    optimizer.step(0)
    return model, optimizer


def turn(
    folder: Path, step: int, shards: bool, policy: tuple[Any, Optimizer], ranks: Ranks
) -> dict[str, float]:
    """Write a checkpoint and read it."""
    model, optimizer = policy
    taken: list[checkpoint.Snapshot] = []

    def fill(place: Path) -> None:
        checkpoint.save(
            place,
            snapshot=taken[0],
            model=model,
            tokenizer=SimpleNamespace(save_pretrained=lambda folder: None),  # type: ignore[arg-type]
            compute_dtype=torch.bfloat16,
            state={},
        )

    def collect() -> None:
        place = folder if shards else None
        taken.append(checkpoint.collect(model, optimizer, None, ranks, place))

    def write() -> None:
        own = taken[0].shards
        if ranks.main:
            CheckpointStore(folder, keep=1).write(step, fill, known=own and own.written)
        elif shards:
            own.write(None, torch.bfloat16)
        taken.clear()

    dist.barrier()
    waited, held = measured(collect)
    dist.barrier()
    wrote, grown = measured(write)
    dist.barrier()
    place = folder / f"step{step:06d}"
    read, peak = measured(lambda: checkpoint.load(place, model=model, optimizer=optimizer))
    return {
        "waited": waited,
        "wrote": wrote,
        "read": read,
        "held": held,
        "peak": max(held, held + grown),
        "load": peak,
    }


def work(given: argparse.Namespace, ranks: Ranks) -> None:
    """One of the processes."""
    made = policy(given, ranks)
    folder = Path(given.folder)
    share = sum(p.numel() for p in made[0].parameters()) * 12 / ranks.world / MIB
    ways = {"gathered": False, "shards": True}
    turn(folder, 1, True, made, ranks)  # imports and the group are not counted
    rows: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for number in range(given.turns):
        for way, shards in ways.items():
            rows[way].append(turn(folder, 2 + 2 * number + shards, shards, made, ranks))
    found = ranks.gather(rows)
    if not ranks.main:
        return
    print(f"{ranks.world} processes, {share:.0f} MiB of master and moments in each")
    for way in ways:
        for name in rows[way][0]:
            each = [statistics.median(turn[name] for turn in one[way]) for one in found]
            print(f"{way:9} {name:7}", *(f"{value:9.2f}" for value in each))


def main() -> None:
    """Start the processes, or be one."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    words.add_argument("--processes", type=int, default=4)
    words.add_argument("--layers", type=int, default=16)
    words.add_argument("--hidden", type=int, default=1024)
    words.add_argument("--vocabulary", type=int, default=32_000)
    words.add_argument("--turns", type=int, default=3)
    words.add_argument("--folder", help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.folder:
        with joined(600.0) as ranks:
            work(given, ranks)
        return
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(
            [
                *(*LAUNCH, f"--nproc-per-node={given.processes}", __file__),
                *sys.argv[1:],
                *("--folder", name),
            ],
            # what is freed goes back to the system, so that growth can be seen
            env=os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"},
            check=True,
            stderr=subprocess.DEVNULL,
        )


if __name__ == "__main__":
    main()
