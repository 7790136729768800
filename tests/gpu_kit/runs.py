"""W: whole runs with every guard on, as users start them: ``rlvr run`` on the GPU.

What they have to do: end with 0, learn as a CPU does, and let no guard speak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from record import Record

ROOT = Path(__file__).parents[2]
STEPS = 24
COMMON = ["examples/quickstart.yaml", "--set", f"train.steps={STEPS}", "--set", "eval.tasks=[]"]
ASYNC = ["rollouts.asynchronous.max_staleness=1"]
RUNS: dict[str, list[str]] = {
    "float32": ["model.dtype=float32"],
    "bfloat16": ["model.dtype=bfloat16"],
    "float16": ["model.dtype=float16"],
    "bfloat16, reference": ["model.dtype=bfloat16", "loss.with.beta=0.01"],
    "bfloat16, LoRA": ["model.dtype=bfloat16", "model.lora.rank=8", "train.lr=3e-3"],
    "bfloat16, mini-batches": ["model.dtype=bfloat16", "train.mini_batches=2"],
    "bfloat16, recomputed": ["model.dtype=bfloat16", "train.gradient_checkpointing=all"],
    "bfloat16, padded rows": ["model.dtype=bfloat16", "model.forward_paths=[]"],
}


def whole_runs(record: Record, model: str, at_once: int, names: list[str] | None = None) -> None:
    """Start the runs beside one another, a run on the CPU among them."""
    jobs = {f"on the GPU, {name}": (changes, {}) for name, changes in RUNS.items()}
    jobs["on the CPU, float32"] = (["model.dtype=float32"], {"CUDA_VISIBLE_DEVICES": ""})
    if names is not None:
        jobs = {name: job for name, job in jobs.items() if name in names}
    with ThreadPoolExecutor(at_once) as pool:
        done = [
            pool.submit(one, record, name, model, changes, env)
            for name, (changes, env) in jobs.items()
        ]
        for future in done:
            future.result()


def one(record: Record, name: str, model: str, changes: list[str], env: dict[str, str]) -> None:
    """A run, and what came of it."""
    place = record.folder / "work" / name.replace(" ", "-").replace(",", "")
    place.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "rlvr_core.cli.main", "run", str(ROOT / COMMON[0]), *COMMON[1:]]
    for change in [f"model.path={model}", f"run.dir={place}", *changes]:
        words += ["--set", change]
    begun = time.monotonic()
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2", **env}
    try:
        done = subprocess.run(
            words, cwd=place, env=environment, capture_output=True, text=True, timeout=240
        )
        code, said = done.returncode, (done.stdout + done.stderr)[-3000:]
    except subprocess.TimeoutExpired as error:
        code, said = -1, str(error.stderr or "")[-3000:]
    seconds = time.monotonic() - begun
    with (record.folder / "runs.txt").open("a") as file:
        file.write(f"== {name}: {code} after {seconds:.0f} s\n{said}\n")
    rewards = curve(place)
    halves = [rewards[: len(rewards) // 2], rewards[len(rewards) // 2 :]]
    means = [sum(half) / max(1, len(half)) for half in halves]
    warned = sum("warn" in line.lower() for line in said.splitlines())
    note = f"mean reward {means[0]:.3f}, then {means[1]:.3f}; {warned} lines warn"
    record.add("W", name, seconds, "s", ok=code == 0 and len(rewards) == STEPS, note=note)


def curve(place: Path) -> list[float]:
    """Mean reward of each step."""
    found = []
    for file in place.glob("**/metrics.jsonl"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            if "reward/mean" in row:
                found.append(float(row["reward/mean"]))
    return found
