"""E: vLLM on the card it trains on: sleep and wake, parity, seeds, ten steps without growth.

Not run on a GPU yet. ``ten_steps`` and ``repeated`` were run with vLLM's CPU build, where nothing
sleeps and no memory of a card is to be measured.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from tests.together.gpu_kit.record import Record
from tests.together.gpu_kit.runs import QUICKSTART, ROOT, begin, keep, metrics, words_of

STEPS = 10
CHANGES = ["engine.use=core/vllm", "checkpoint.every=100", "train.warmup_steps=2"]
GROWTH = 1.02
"""Most that a step's peak may be of the third step's: the first two try kernels."""
APART = {"float32": 1e-3, "bfloat16": 3e-2}
"""Nats by which trainer and vLLM may differ in the mean; the guards have bands of their own."""


def engines(record: Record, model: str) -> None:
    """Everything of the part."""
    pytest(record, "E", "sleep gives memory back and loses nothing", "tests/engines/test_vllm.py")
    for dtype in ("bfloat16", "float32"):
        name = f"ten steps, {dtype}"
        record.attempt("E", name, lambda dtype=dtype: ten_steps(record, model, dtype))
    record.attempt("E", "twice the same", lambda: repeated(record, model))


def ten_steps(record: Record, model: str, dtype: str, *more: str) -> None:
    """A run whose engine and trainer share the card; every guard is on."""
    place = record.folder / "work" / f"vllm-{dtype}"
    code, said, found = ran(record, place, model, f"model.dtype={dtype}", *more)
    steps = len(found.get("step", []))
    name = f"colocated vLLM, {dtype}"
    note = f"exit code {code}; {last_error(said)}"
    record.add("E", f"{name}: steps", steps, ok=code == 0 and steps == STEPS, note=note)
    apart = max(found["mismatch/abs_mean"])
    limit = APART[dtype]
    record.add("E", f"{name}: parity", apart, "nats", limit=limit, ok=apart <= limit, n=steps)
    if "seeds/astray" in found:  # guard seeds watches engines whose draws it can compute
        astray = sum(found["seeds/astray"])
        record.add("E", f"{name}: completions of another seed", astray, ok=astray == 0, n=steps)
    if syncs := [float(one) for one in re.findall(r"sync ([\d.]+) s", said)]:
        record.add("E", f"{name}: sync", median(syncs), "s", n=len(syncs))
    if "gpu/peak_memory" not in found:
        record.add("E", f"{name}: peak of the last step", None, note="there is no GPU")
        return
    third, last = found["gpu/peak_memory"][2], found["gpu/peak_memory"][-1]
    note = f"{last:.2f} GiB, {third:.2f} in the third"
    name += ": peak of the last step by the third's"
    record.add("E", name, last / third, limit=GROWTH, ok=last / third <= GROWTH, note=note)


def repeated(record: Record, model: str, *more: str) -> None:
    """The first steps of two runs of one seed sample the same."""
    both = []
    for name in ("first", "second"):
        place = record.folder / "work" / f"vllm-{name}"
        _, _, found = ran(record, place, model, "train.steps=2", "train.warmup_steps=0", *more)
        both.append([found[key][0] for key in ("reward/mean", "length/mean", "unique_rate")])
    note = f"reward, length and share of different completions: {both[0]}, {both[1]}"
    same = both[0] == both[1]
    record.add("E", "two runs of one seed: the first step", float(same), ok=same, note=note)


def ran(
    record: Record, place: Path, model: str, *more: str
) -> tuple[int, str, dict[str, list[float]]]:
    """Make a run; return its exit code, what it said, and metrics by name.

    Raises:
        RuntimeError: It made no step.
    """
    begun = time.monotonic()
    process = begin(words_of(QUICKSTART, place, model, STEPS, *CHANGES, *more), place)
    try:
        code = process.wait(timeout=400)
    except subprocess.TimeoutExpired:
        process.kill()
        code = -1
    title = f"{place.name}: {code} after {time.monotonic() - begun:.0f} s"
    said = keep(record, title, place)
    found = metrics(place)
    if not found.get("step"):
        raise RuntimeError(f"exit code {code} and no step: {last_error(said)}")
    return code, said, found


def last_error(said: str) -> str:
    """The last line that tells of an error."""
    lines = [line for line in said.splitlines() if "error" in line.lower()]
    return lines[-1] if lines else "no error was told"


def pytest(record: Record, part: str, name: str, file: str) -> None:
    """Tests of a file that need a GPU."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", file]
    begun = time.monotonic()
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    with (record.folder / "runs.txt").open("a") as log:
        log.write(f"== {name}\n{(done.stdout + done.stderr)[-6000:]}\n")
    lines = done.stdout.strip().splitlines() or [""]
    passed = done.returncode == 0 and "passed" in lines[-1] and "skipped" not in lines[-1]
    note = f"{lines[-1][:120]}: pytest -m gpu {file}"
    record.add(part, name, time.monotonic() - begun, "s", ok=passed, note=note)
