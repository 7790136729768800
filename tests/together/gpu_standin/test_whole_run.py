"""``rlvr run`` from its first line to its last on the stand-in, with every guard."""

import json
import shutil
from pathlib import Path

import pytest

from tests.together.gpu_standin.apart import apart

HERE = Path(__file__).parent

QUICKSTART = HERE.parents[2] / "examples" / "quickstart.yaml"
# of answers that are not cut off one in five is right, whatever the machine's numerics: some group
# has something to learn from
SHORT = {
    "train.steps": "2", "train.warmup_steps": "0", "train.prompts_per_step": "8",
    "sampling.max_tokens": "24", "eval.tasks": "[]", "checkpoint.every": "100",
}  # fmt: skip

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the stand-in needs g++")


def words(folder, **changes):
    """The words of a short run, whose folder is in this one."""
    said = ["run", str(QUICKSTART)]
    given = SHORT | {"run.dir": str(folder)}
    for key, value in (given | {k.replace("__", "."): v for k, v in changes.items()}).items():
        said += ["--set", f"{key}={value}"]
    return said


def stood_in(*jobs):
    """Exit code and figures of each command, and what they said; in one process."""
    printed, said = apart("whole_runs", jobs)
    return [json.loads(one) for one in printed.splitlines() if one.startswith("{")], said


def of_run(folder, name):
    """A file of the run in a folder."""
    return next(folder.glob(f"quickstart-*/{name}")).read_text()


def metrics(folder):
    return [json.loads(line) for line in of_run(folder, "metrics.jsonl").splitlines()]


def test_a_run_with_every_guard_ends_well_and_says_which_card_it_had(tmp_path):
    large, small = tmp_path / "large", tmp_path / "small"
    # the guard of Muon's matrices knows that a GPU iterates in bfloat16
    options = {"model__dtype": "bfloat16", "train__optimizer": "algos/muon"}
    jobs = [
        {"words": words(large, loss__with__beta="0.01", **options)},
        {"words": words(small), "memory": 0.002},
    ]
    (whole, refused), said = stood_in(*jobs)
    assert whole["code"] == 0, said[-3000:]
    manifest = json.loads(of_run(large, "run.json"))
    assert manifest["hardware"]["gpus"] == [
        {"name": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 << 30}
    ]
    assert manifest["checks"]["gradient_checkpointing"]["choice"] == "none"
    assert manifest["checks"]["attention"] == {"rows": "packed", "kernel": "flash", "reason": ""}
    assert "attention: rows are packed, flash kernel" in said
    assert "the largest micro-batch (" in said
    assert "warn" not in said.lower()
    found = metrics(large)
    assert [line["step"] for line in found] == [0, 1]
    for line in found:
        assert line["gpu/train_seconds"] > 0
        assert 0 < line["gpu/peak_memory"] < 0.02
        assert 0 < line["gpu/mfu"] < 1
    # a card of 2 MiB has no room for the weights of 1.1 MiB, moments and a step
    assert refused["code"] != 0
    assert "CUDA out of memory" in said or "does not fit on the GPU" in said
