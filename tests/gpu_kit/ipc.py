"""I: an engine in a process of its own on the trainer's card, by two transports."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from pathlib import Path

import torch
from record import Record
from runs import begin, keep, metrics, words_of

STEPS = 6
SIZES = {"hidden_size": 2048, "num_hidden_layers": 28, "intermediate_size": 6144}
HEADS = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
CHANGES = ["model.dtype=bfloat16", "train.max_staleness=1", "checkpoint.every=100"]
CHANGES += ["train.compile=false", "sampling.n=4", "train.prompts_per_step=8"]


def transports(record: Record) -> None:
    """Qwen3-1.7B's layers on 258 tokens: seconds of a sync through memory and on the card."""
    from rlvr_core.testing.random_model import save_random_model

    place = record.folder / "work" / "ipc"
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name("vowels.py"), place)
    with torch.device("cuda"):
        save_random_model(place / "model", **SIZES, **HEADS, initializer_range=0.02)
    torch.cuda.empty_cache()
    for transport in ("core/shared-memory", "core/cuda-ipc"):
        record.attempt("I", transport, lambda name=transport: one(record, name, place))


def one(record: Record, transport: str, place: Path) -> None:
    """A run, every guard on: its sync has a probe, and the engine's weights are read back."""
    mine = place / transport.rpartition("/")[2]
    mine.mkdir()
    shutil.copy(place / "vowels.py", mine)
    engine = f"engine={{use: core/transformers, transport: {transport}}}"
    config = Path(__file__).with_name("wide.yaml")
    words = words_of(config, mine, str(place / "model"), STEPS, *CHANGES, engine)
    begun = time.monotonic()
    code = begin(words, mine).wait(timeout=150)
    said = keep(record, f"{transport}: {code}", mine)
    timings = list(mine.glob("*/traces/timing.jsonl"))
    lines = [json.loads(line) for file in timings for line in file.read_text().splitlines()]
    spent = [line["seconds"]["sync"] for line in lines if "sync" in line.get("seconds", {})]
    read_back = metrics(mine).get("sync/read_back", [])
    note = f"exit code {code} after {time.monotonic() - begun:.0f} s; syncs {spent}; "
    note += f"{sum(read_back):.0f} read back; {said.count('warn')} lines warn"
    middle = statistics.median(spent) if spent else None
    record.add("I", f"{transport}: sync", middle, "s", n=len(spent), ok=code == 0, note=note)
