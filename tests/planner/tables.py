"""The tables of docs/plan.md: ``python -m tests.planner.tables`` prints them."""

import json
import sys
import tempfile
from pathlib import Path

import yaml

from rlvr_core.builtin.planner.memory import memory_of
from rlvr_core.builtin.planner.setup import Micro
from tests.gpu_standin.sizes import SIZES
from tests.planner.places import HUB, config_of, model, planned

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples" / "recipes"
GIB = 2**30
LAYERS = "num_hidden_layers"
_HERE = Path(__file__).parent


def _figures(name):
    lines = (_HERE / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


MEASURED = _figures("measured.jsonl")
"""What the stand-in gave: ``python tests/gpu_standin/run.py '[CASE]'``."""
SHARDED = _figures("sharded.jsonl")
"""What it gave of one rank of several, by shapes."""
CARDS = {
    "lora-24gb": ("l4-24", 1, None, 300),
    "math-2gpu": ("h100-80", 2, 1, 500),
    "math-8b-8gpu": ("h100-80", 8, None, 1000),
    "math-8b-6and2": ("h100-80", 8, 2, 1000),
    "reasoning-32k-8gpu": ("h100-80", 8, 4, 12_000),
}
"""GPU, how many, those of engines and mean tokens of a completion, by recipe."""


def predicted(figure, folder):
    """Memory by the formulas for the micro-batches that the stand-in had."""
    case = figure["case"]
    changes = ["train.parallel=fsdp", "engine.use=core/vllm"] if "ranks" in case else []
    if case.get("split", 1) > 1:
        changes.append(f"train.context_parallel={case['split']}")
    setup = planned(config_of(case, folder), *changes, count=case.get("ranks", 1)).setup
    micros = [Micro(**sizes) for sizes in figure["micro_batches"]]
    given = [(micro, place > 0) for place, micro in enumerate(micros)]
    return memory_of(setup, given, reserved=0)


def measured(figures=MEASURED):
    """Peaks of the stand-in beside the formulas'."""
    lines = [
        "| model and run | layers | tokens | stand-in, GiB | formula | difference |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for figure in figures:
            peak, found = figure["peak"], predicted(figure, folder).training
            layers = figure["case"].get("layers") or SIZES[figure["case"]["size"]][LAYERS]
            most = max(sizes["tokens"] for sizes in figure["micro_batches"])
            lines.append(
                f"| {figure['name']} | {layers} | {most:,} | {peak / GIB:.2f} | {found / GIB:.2f} "
                f"| {100 * (found / peak - 1) + 0.0:+.2f} % |".replace("-0.00", "0.00").replace(
                    "+0.00", "0.00"
                )
            )
    return "\n".join(lines)


def plan_of_recipe(name):
    """Plan a recipe on what it is for; the model's sizes come from the tests."""
    gpu, count, engine_gpus, mean = CARDS[name]
    config = RECIPES / f"{name}.yaml"
    path = yaml.safe_load(config.read_text(encoding="utf-8"))
    while "path" not in path.get("model", {}):
        config = config.parent / path["extends"]
        path = yaml.safe_load(config.read_text(encoding="utf-8"))
    folder = model(HUB[path["model"]["path"]])
    return planned(
        RECIPES / f"{name}.yaml",
        f"model.path={folder}",
        gpu=gpu,
        count=count,
        engine_gpus=engine_gpus,
        mean_tokens=mean,
    )


def recipes():
    """What each recipe is predicted to take."""
    lines = [
        "| recipe | GPUs | mean tokens | peak, GiB | left | seconds a step | bottleneck | hours |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (gpu, count, _, mean) in CARDS.items():
        plan = plan_of_recipe(name)
        memory, speed = plan.memory, plan.speed
        lines.append(
            f"| `{name}` | {count} x {gpu} | {mean:,} | {memory.peak / GIB:.1f} "
            f"({memory.moment}) | {memory.left / GIB:.1f} | {speed.step:.3g} "
            f"| {speed.bottleneck} | {speed.hours:.3g} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(f"{measured()}\n\n{measured(SHARDED)}\n\n{recipes()}\n")
