"""Model folders by their sizes alone, and configurations of what the stand-in was given."""

import functools
import json
import tempfile
from pathlib import Path

import yaml

from rlvr_core.plugins.host import load_host
from rlvr_doctor.planner.plans import Planner
from tests.support.sizes import SIZES

HUB = {
    "Qwen/Qwen3-1.7B-Base": "1.7B",
    "Qwen/Qwen3-4B-Base": "4B",
    "Qwen/Qwen3-8B-Base": "8B",
    "Qwen/Qwen3-8B": "8B",
}
"""Ids of the hub, by the sizes that they have."""


@functools.cache
def model(size, layers=None, vocab=None):
    """A folder with the config.json of a model, for as long as this process lives."""
    sizes = {"model_type": "qwen3", "max_position_embeddings": 40_960} | SIZES[size]
    if layers is not None:
        sizes["num_hidden_layers"] = layers
    if vocab is not None:
        sizes["vocab_size"] = vocab
    folder = tempfile.TemporaryDirectory()
    _FOLDERS.append(folder)
    path = Path(folder.name) / "config.json"
    path.write_text(json.dumps(sizes), encoding="utf-8")
    return str(path.parent)


_FOLDERS = []


def config_of(case, folder):
    """A configuration that does what the stand-in did for a case; in ``folder``."""
    lora = case.get("lora")
    content = {
        "run": {"name": "case"},
        "model": {
            "path": model(case["size"], case.get("layers"), case.get("vocab")),
            "dtype": case.get("dtype", "bfloat16"),
            "lora": {"rank": lora} if lora else None,
        },
        "data": {"sources": [{"use": "math/gsm8k"}], "max_prompt_tokens": case["prompt"]},
        "sampling": {"n": case["n"], "max_tokens": case["tokens"]},
        "engine": {"use": "core/transformers"},
        "loss": {"use": "core/grpo", "with": {"beta": case.get("beta", 0.0)}},
        "train": {
            "steps": 10,
            "prompts_per_step": case["groups"],
            "tokens_per_micro_batch": case["budget"],
            "gradient_checkpointing": {True: "all", False: "none"}.get(
                again := case.get("checkpointing", False), again
            ),
            "optimizer": "algos/muon" if case.get("muon") else "core/adamw",
            "reference": {"offload": case.get("offload", False)},
        },
    }
    file = Path(folder) / "case.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def planned(config, *changes, gpu="h200", count=1, **more):
    """Plan a file."""
    return planner(config, gpu=gpu, **more).plan(count, changes)


def planner(config, *overrides, gpu="h200", **more):
    """A planner of a file."""
    return Planner(Path(config), overrides, load_host(), gpu, **more)
