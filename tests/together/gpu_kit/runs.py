"""W: whole runs with every guard on, as users start them: ``rlvr run`` on the GPU.

What they have to do: end with 0, learn as a CPU does, and let no guard speak.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.together.gpu_kit.record import Record

ROOT = Path(__file__).parents[3]
STEPS = 24
QUICKSTART = ROOT / "examples" / "quickstart.yaml"
RLVR = [sys.executable, "-m", "rlvr_core.cli.main"]
RUNS: dict[str, list[str]] = {
    "float32": ["model.dtype=float32"],
    "bfloat16": ["model.dtype=bfloat16"],
    "float16": ["model.dtype=float16"],
    "bfloat16, reference": ["model.dtype=bfloat16", "loss.with.beta=0.01"],
    "bfloat16, LoRA": ["model.dtype=bfloat16", "model.lora.rank=8", "train.lr=3e-3"],
    "bfloat16, mini-batches": ["model.dtype=bfloat16", "train.mini_batches=2"],
    "bfloat16, recomputed": ["model.dtype=bfloat16", "train.gradient_checkpointing=all"],
    "bfloat16, padded rows": ["model.dtype=bfloat16", "model.forward_paths=[]"],
    "bfloat16, compiled": ["model.dtype=bfloat16", "train.compile=true"],
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
    begun = time.monotonic()
    process = begin(words_of(QUICKSTART, place, model, STEPS, *changes), place, **env)
    try:
        code = process.wait(timeout=240)
    except subprocess.TimeoutExpired:
        process.kill()
        code = -1
    seconds = time.monotonic() - begun
    said = keep(record, f"{name}: {code} after {seconds:.0f} s", place)
    rewards = metrics(place).get("reward/mean", [])
    halves = [rewards[: len(rewards) // 2], rewards[len(rewards) // 2 :]]
    means = [sum(half) / max(1, len(half)) for half in halves]
    warned = sum("warn" in line.lower() for line in said.splitlines())
    note = f"mean reward {means[0]:.3f}, then {means[1]:.3f}; {warned} lines warn"
    record.add("W", name, seconds, "s", ok=code == 0 and len(rewards) == STEPS, note=note)


def resumed(record: Record, model: str) -> None:
    """A run that was killed and goes on ends with the weights of one that was left alone."""
    for dtype in ("bfloat16", "float32"):
        places = [record.folder / "work" / f"{name}-{dtype}" for name in ("whole", "killed")]
        changes = (f"model.dtype={dtype}", "checkpoint.every=8")
        commands = [words_of(QUICKSTART, place, model, STEPS, *changes) for place in places]
        processes = [begin(words, place) for words, place in zip(commands, places, strict=True)]
        until = time.monotonic() + 120
        while steps_of(places[1]) < 12 and time.monotonic() < until:
            time.sleep(0.2)
        processes[1].kill()
        codes = [process.wait(timeout=240) for process in processes]
        stopped = steps_of(places[1])
        folder = next(places[1].glob("quickstart-*"))
        codes.append(begin([*RLVR, "run", "--resume", str(folder)], places[1]).wait(timeout=240))
        files = [next(place.glob(f"*/checkpoints/step{STEPS:06}")) for place in places]
        names = ["model.safetensors", "trainer/optimizer.safetensors"]
        same = all(len({(one / name).read_bytes() for one in files}) == 1 for name in names)
        note = f"killed after step {stopped} of {STEPS}, exit codes {codes}"
        name = f"killed and resumed, {dtype}: weights and moments bit for bit"
        record.add("R", name, float(same), ok=same and codes[0] == codes[2] == 0, note=note)


def words_of(config: Path, place: Path, model: str, steps: int, *changes: str) -> list[str]:
    """The words that start a run, to put its folder into ``place``."""
    words = [*RLVR, "run", str(config)]
    common = (f"train.steps={steps}", "eval.tasks=[]", f"model.path={model}", f"run.dir={place}")
    for change in (*common, *changes):
        words += ["--set", change]
    return words


def begin(
    words: list[str], place: Path, log: str = "said.txt", **env: str
) -> subprocess.Popen[bytes]:
    """Start a command in a folder; what it says is a file there."""
    place.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"} | env
    with (place / log).open("a") as file:
        return subprocess.Popen(words, cwd=place, env=environment, stdout=file, stderr=file)


def side_by_side(
    words: list[str], place: Path, world: int, *, cards: int, limit: float
) -> tuple[list[int], list[str]]:
    """Start a command as so many ranks, dealt out to so many cards; exit codes, names of logs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    logs = [f"rank{rank}.txt" for rank in range(world)]
    started = []
    for rank, log in enumerate(logs):
        ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank % cards), **common} if world > 1 else {}
        started.append(begin(words, place, log, **ranks))
    try:
        codes = [process.wait(timeout=limit) for process in started]
    finally:
        for process in started:
            process.kill()
    return codes, logs


def keep(record: Record, title: str, place: Path, *logs: str) -> str:
    """Put the ends of what a run's processes said beside the findings, and return them."""
    said = "".join((place / log).read_text()[-3000:] for log in logs or ("said.txt",))
    with (record.folder / "runs.txt").open("a") as file:
        file.write(f"== {title}\n{said}\n")
    return said


def wide(record: Record) -> None:
    """A model of 0.2B random weights, whose step is not made of waiting: what its phases take."""
    from rlvr_core.testing.random_model import save_random_model

    place = record.folder / "work" / "wide"
    place.mkdir(parents=True, exist_ok=True)
    sizes = {"hidden_size": 1024, "num_hidden_layers": 16, "intermediate_size": 3072}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 128}
    # the paths of a configuration start at the working folder
    shutil.copy(Path(__file__).with_name("vowels.py"), place)
    save_random_model(place / "model", **sizes, **heads, initializer_range=0.02)
    config = Path(__file__).with_name("wide.yaml")
    changes = ("model.dtype=bfloat16", "checkpoint.every=8")
    words = words_of(config, place, str(place / "model"), STEPS, *changes)
    code = begin(words, place).wait(timeout=240)
    rewards = metrics(place)["reward/mean"]
    begin([*RLVR, "show", str(next(place.glob("wide-*")))], place, "show.txt").wait(timeout=60)
    keep(record, "wide", place, "said.txt", "show.txt")
    note = f"reward of the first step {rewards[0]:.3f}, of the last {rewards[-1]:.3f}"
    record.add("R", "0.2B, bfloat16", float(code), "exit code", ok=code == 0, note=note)


def metrics(place: Path) -> dict[str, list[float]]:
    """Numbers of each step by name, of the run in a folder."""
    found: dict[str, list[float]] = {}
    for file in place.glob("**/metrics.jsonl"):
        for line in file.read_text().splitlines():
            for key, value in json.loads(line).items():
                if isinstance(value, int | float):
                    found.setdefault(key, []).append(float(value))
    return found


def steps_of(place: Path) -> int:
    """How many steps have their line."""
    return len(metrics(place).get("step", []))
