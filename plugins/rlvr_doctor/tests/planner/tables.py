"""Figures that the stand-in gave, and the plans of recipes, for the tests of the planner."""

import json
from pathlib import Path

import yaml

from plugins.rlvr_doctor.tests.planner.places import HUB, config_of, model, planned
from rlvr_doctor.planner.memory import memory_of
from rlvr_doctor.planner.setup import Micro

ROOT = Path(__file__).parents[4]
RECIPES = ROOT / "examples" / "recipes"
GIB = 2**30
LAYERS = "num_hidden_layers"
_HERE = Path(__file__).parent


def _figures(name):
    lines = (_HERE / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


MEASURED = _figures("measured.jsonl")
"""What the stand-in gave: ``python tests/together/gpu_standin/run.py '[CASE]'``."""
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
