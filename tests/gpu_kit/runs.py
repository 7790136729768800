"""W: whole runs with every guard on, as users start them: ``rlvr run`` on the GPU.

What they have to do: end with 0, learn as a CPU does, and let no guard speak.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from record import Record

ROOT = Path(__file__).parents[2]
STEPS = 24
COMMON = ["examples/quickstart.yaml", "--set", f"train.steps={STEPS}", "--set", "eval.tasks=[]"]
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


def resumed(record: Record, model: str) -> None:
    """A run that was killed and goes on ends with the weights of one that was left alone."""
    for dtype in ("bfloat16", "float32"):
        places = [record.folder / "work" / f"{name}-{dtype}" for name in ("whole", "killed")]
        commands = [started(place, model, dtype) for place in places]
        processes = [begin(words, place) for words, place in zip(commands, places, strict=True)]
        until = time.monotonic() + 120
        while len(curve(places[1])) < 12 and time.monotonic() < until:
            time.sleep(0.2)
        processes[1].kill()
        codes = [process.wait(timeout=240) for process in processes]
        stopped = len(curve(places[1]))
        folder = next(places[1].glob("quickstart-*"))
        again = [*commands[1][:4], "--resume", str(folder)]
        codes.append(begin(again, places[1]).wait(timeout=240))
        files = [next(place.glob(f"*/checkpoints/step{STEPS:06}")) for place in places]
        names = ["model.safetensors", "trainer/optimizer.safetensors"]
        same = all(len({(one / name).read_bytes() for one in files}) == 1 for name in names)
        note = f"killed after step {stopped} of {STEPS}, exit codes {codes}"
        name = f"killed and resumed, {dtype}: weights and moments bit for bit"
        record.add("R", name, float(same), ok=same and codes[0] == codes[2] == 0, note=note)


def started(place: Path, model: str, dtype: str) -> list[str]:
    """The words of a run of the quick start in a folder."""
    words = [sys.executable, "-m", "rlvr_core.cli.main", "run", str(ROOT / COMMON[0]), *COMMON[1:]]
    changes = [f"model.path={model}", f"run.dir={place}", f"model.dtype={dtype}"]
    for change in [*changes, "checkpoint.every=8"]:
        words += ["--set", change]
    return words


def begin(words: list[str], place: Path) -> subprocess.Popen[bytes]:
    """Start a command in a folder; what it says is a file there."""
    place.mkdir(parents=True, exist_ok=True)
    env = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    log = (place / "said.txt").open("a")
    return subprocess.Popen(words, cwd=place, env=env, stdout=log, stderr=log)


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
    words = started(place, str(place / "model"), "bfloat16")
    words[4] = str(Path(__file__).with_name("wide.yaml"))
    code = begin(words, place).wait(timeout=240)
    rewards = curve(place)
    show = subprocess.run(
        [*words[:3], "show", str(next(place.glob("wide-*")))],
        capture_output=True,
        text=True,
        check=False,
    )
    with (record.folder / "runs.txt").open("a") as file:
        file.write(f"== wide\n{(place / 'said.txt').read_text()[-6000:]}\n{show.stdout}\n")
    note = f"reward of the first step {rewards[0]:.3f}, of the last {rewards[-1]:.3f}"
    record.add("R", "0.2B, bfloat16", float(code), "exit code", ok=code == 0, note=note)


def curve(place: Path) -> list[float]:
    """Mean reward of each step."""
    found = []
    for file in place.glob("**/metrics.jsonl"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            if "reward/mean" in row:
                found.append(float(row["reward/mean"]))
    return found
