"""F: two GPUs and more: NCCL to a server, one that is killed, and what a rank of ``fsdp`` takes.

Not run on GPUs yet: no machine with two was to be had. What is tested without one is how the
figures are read and compared, in ``test_kit.py``.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from pathlib import Path

from tests.together.gpu_kit.engines import last_error, pytest
from tests.together.gpu_kit.record import Record
from tests.together.gpu_kit.runs import RLVR, keep, side_by_side, words_of

HERE = Path(__file__).parent
RANKS = 2
STEPS = 6
CHANGES = [
    *("model.dtype=bfloat16", "train.parallel=fsdp", "checkpoint.every=100"),
    *("train.warmup_steps=0", "engine.use=core/transformers"),
]
CLOSE = 0.1
"""How far a peak may be from the formula's, as a share; and 0.05 GiB, which a run does not say."""


def several(record: Record) -> None:
    """Everything of the part, on the first two GPUs."""
    if importlib.util.find_spec("vllm") is None:
        record.add("F", "weights to a server", None, note="not made: vLLM is not installed here")
    else:
        name = "weights over NCCL to a server, which is killed and comes again"
        pytest(record, "F", name, "tests/engines/test_vllm_server_real.py")
    record.attempt("F", "fsdp", lambda: fsdp(record))


def fsdp(record: Record) -> None:
    """The largest micro-batch of a model of 0.2B over two GPUs, by the run and by the formula.

    Raises:
        RuntimeError: A process failed.
    """
    from rlvr_core.testing.random_model import save_random_model

    place = record.folder / "work" / "fsdp"
    place.mkdir(parents=True, exist_ok=True)
    (place / "vowels.py").write_text((HERE / "vowels.py").read_text())
    sizes = {"hidden_size": 1024, "num_hidden_layers": 16, "intermediate_size": 3072}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 128}
    save_random_model(place / "model", **sizes, **heads, initializer_range=0.02)
    words = words_of(HERE / "wide.yaml", place, str(place / "model"), STEPS, *CHANGES)
    said = launched(record, words, place)
    fullest, peak = rehearsed(said)
    planned = formula(words, place)
    near = abs(peak / planned - 1)
    note = f"{peak:.1f} GiB, {planned:.2f} by rlvr plan, {fullest:,} tokens"
    ok = abs(peak - planned) <= CLOSE * planned + 0.05
    record.add(
        "F", "fsdp: peak of a rank by the formula's", near, "apart", limit=CLOSE, ok=ok, note=note
    )


def launched(record: Record, words: list[str], place: Path) -> str:
    """Start a process for each GPU; return what they said.

    Raises:
        RuntimeError: A process failed.
    """
    codes, logs = side_by_side(words, place, RANKS, cards=RANKS, limit=300)
    keep(record, f"fsdp: {codes}", place, *logs)
    said = "".join((place / log).read_text() for log in logs)
    if any(codes):
        raise RuntimeError(f"exit codes {codes}: {last_error(said)}")
    return said


def rehearsed(said: str) -> tuple[int, float]:
    """Tokens and GiB of the largest micro-batch, by what a run says of it.

    Raises:
        RuntimeError: It says nothing of it.
    """
    found = re.search(r"largest micro-batch \(([\d,]+) tokens\) fits: ([\d.]+) of", said)
    if found is None:
        raise RuntimeError("the run did not try its largest micro-batch")
    return int(found[1].replace(",", "")), float(found[2])


def formula(words: list[str], place: Path) -> float:
    """What ``rlvr plan`` has for a rank in training, in GiB, without what it adds for CUDA.

    Raises:
        RuntimeError: It cannot plan the run.
    """
    config, *changes = words[len(RLVR) + 1 :]
    command = [*RLVR, "plan", config, *changes, "--gpu", "h100-80", "--count", str(RANKS), "--json"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"rlvr plan: {last_error(done.stderr)}")
    memory = json.loads(done.stdout)["memory"]
    return float(memory["training"] - memory["reserved"]) / 2**30
