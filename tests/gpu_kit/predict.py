"""Writes ``predictions.json``: what the planner and the stand-in say before a GPU is touched.

    python tests/gpu_kit/predict.py

Seconds, MFU and speed are ``rlvr plan``'s roofline for an H200, peaks and kernels the stand-in's
counts, and the ceilings of part A the planner's assumptions.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "gpu_standin"), str(HERE.parents[1])]

import fast  # noqa: E402
import torch  # noqa: E402

from rlvr_core.builtin.planner import cards, speed  # noqa: E402
from rlvr_core.builtin.planner.setup import Setup  # noqa: E402
from tests.planner.places import config_of, planned  # noqa: E402

GIB = 2**30


def main() -> None:
    """Predict every case of part C, and the ceilings."""
    card = cards.CARDS["h200"]
    found = {
        "A copy on the device": card.attainable / 1e12,
        "A product in bfloat16": card.products(half=True) / 1e12,
        "A product in float32": card.products(half=False) / 1e12,
        "A launch of a small kernel": cards.LAUNCH * 1e6,
        "A pinned memory to the device": card.host / 1e9,
    }
    for name in fast.CASES:
        found |= {f"C {name}: {key}": round(value, 4) for key, value in predict(name).items()}
        (HERE / "predictions.json").write_text(json.dumps(found, indent=1) + "\n")
        print(name, flush=True)


def predict(name: str) -> dict[str, float]:
    """Figures of one case by their names."""
    case = fast.case_of(name) | {"steps": 2}
    command = [sys.executable, str(HERE.parent / "gpu_standin" / "run.py"), json.dumps([case])]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    counted = json.loads(said)
    setup = setup_of(case, counted["sizes"])
    timed = speed.speed_of(setup, 1e11)
    trained = sum(one["loss_tokens"] for one in counted["sizes"])
    step = timed.scoring + timed.gradient + timed.optimizer
    fed = setup.step_tokens
    return {
        "step": step,
        "speed": trained / step,
        "MFU": 100 * 6 * setup.shape.params * fed / step / setup.card.peak,
        "forward and backward": timed.gradient,
        "optimizer": timed.optimizer,
        "peak": counted["peak"] / GIB,
        "between steps": counted["at_rest"] / GIB,
        "kernels": counted["launches"],
    }


def setup_of(case: dict[str, Any], sizes: list[dict[str, int]], *, compiled: bool = False) -> Setup:
    """The case as ``rlvr plan`` has it, with the lengths that its rows have in the mean."""
    rows = case["groups"] * case["n"]
    trained = sum(one["loss_tokens"] for one in sizes) / rows
    prompt = sum(one["tokens"] for one in sizes) / case["groups"] - trained * case["n"]
    with tempfile.TemporaryDirectory() as folder:
        changes = ["train.compile=true"] if compiled else []
        plan = planned(config_of(case, folder), *changes, mean_tokens=trained)
    return replace(plan.setup, mean_prompt=prompt)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
