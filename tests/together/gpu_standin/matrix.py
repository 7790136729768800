"""The cases of a step: every path, precision and option."""

from collections.abc import Mapping
from typing import Any

PATHS: Mapping[str, Mapping[str, Any]] = {
    "flash": {},
    "grids": {"flash": False},
    "whole rows": {"forward_paths": False},
}
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "reference": {"beta": 0.05},
    "offloaded reference": {"beta": 0.05, "offload": True},
    "LoRA": {"lora": 4},
    "LoRA, reference": {"lora": 4, "beta": 0.05},
    "distillation": {"distillation": True},
    "mini-batches": {"mini_batches": 2, "beta": 0.05},
    "advantages per token": {"per_token": True, "beta": 0.05},
    "muon": {"muon": True},
}
SMALL: Mapping[str, Any] = {"groups": 2, "budget": 40, "steps": 2}


def cases(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By name: every path in every precision, recomputed or not, with these options."""
    found = {}
    for dtype in ("bfloat16", "float16", "float32"):
        for path, how in PATHS.items():
            if path == "flash" and dtype == "float32":
                continue  # no flash kernel computes in it
            for again in (False, True):
                for option in options:
                    name = [path, dtype, "checkpointing" if again else "", option]
                    case = {**SMALL, "dtype": dtype, "checkpointing": again}
                    found[", ".join(filter(None, name))] = {**case, **how, **OPTIONS[option]}
    return found


EVERY = cases(OPTIONS)
