"""Reads the weights of a model with LoRA adapters: merged as if it had none, or the adapter alone.

peft replaces each adapted layer by a wrapper with ``base_layer`` and, by adapter name, the matrices
``lora_A`` (rank, in) and ``lora_B`` (out, rank). Nothing here imports peft.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rlvr_core.api import Adapter
from rlvr_core.parallel.sharded import whole

POLICY = "default"  # peft's name for an adapter loaded without a name
WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
_PREFIX = "base_model.model."  # prefix of the model's names within peft's wrapper


def is_adapted(module: nn.Module) -> bool:
    """Whether a module is a layer with LoRA adapters."""
    return isinstance(getattr(module, "base_layer", None), nn.Module) and hasattr(module, "lora_A")


def merged_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters merged with their adapters, by the names of the plain model.

    A tied weight is yielded once. Sharded weights are gathered, so every process must iterate.
    """
    adapted = {name: module for name, module in model.named_modules() if is_adapted(module)}
    for name, parameter in model.named_parameters():
        owner, base, leaf = name.rpartition(".base_layer.")
        if base and owner in adapted:
            weight = whole(parameter).detach()
            if leaf == "weight":
                weight = _with_adapters(adapted[owner], weight)
            yield f"{owner}.{leaf}", weight.detach()
        elif not any(part.startswith("lora_") for part in name.split(".")):
            yield name, whole(parameter).detach()


def matrices(model: nn.Module, adapter: str = POLICY) -> dict[str, nn.Parameter]:
    """Return the matrices of an adapter, by their names in the model."""
    return {
        name: p
        for name, p in model.named_parameters()
        if f".{adapter}." in name and ".lora_" in name
    }


def name_in_file(name: str) -> str:
    """Return the name of a matrix of the policy's adapter in peft's file."""
    return _PREFIX + name.replace(f".{POLICY}.", ".")


def adapter_of(model: Any, tensors: dict[str, Tensor] | None = None) -> Adapter:
    """Return the policy's adapter as peft saves it; if it is sharded, every process must call this.

    Args:
        model: The policy.
        tensors: Its full ``matrices``; gathered here if omitted.
    """
    if tensors is None:
        tensors = {name: whole(matrix.detach()) for name, matrix in matrices(model).items()}
    config = model.peft_config[POLICY].to_dict()
    config["target_modules"] = sorted(config["target_modules"])
    named = {name_in_file(name): tensor.cpu().contiguous() for name, tensor in tensors.items()}
    return Adapter(named, config)


def write_adapter(folder: Path, adapter: Adapter) -> None:
    """Write an adapter into an existing folder, as peft and vLLM load it."""
    from safetensors.torch import save_file

    save_file(adapter.tensors, folder / WEIGHTS, metadata={"format": "pt"})
    text = json.dumps(adapter.config, indent=2, sort_keys=True)
    (folder / CONFIG).write_text(text, encoding="utf-8")


def _with_adapters(layer: Any, weight: Tensor) -> Tensor:
    if layer.disable_adapters:
        return weight
    for name in layer.active_adapters:
        a_RI, b_OR = (whole(half[name].weight) for half in (layer.lora_A, layer.lora_B))
        # an adapter is added to half-precision weights in the adapter's own precision
        delta_OI = layer.scaling[name] * (b_OR @ a_RI)
        weight = weight.to(torch.promote_types(weight.dtype, delta_OI.dtype)) + (
            delta_OI.T if layer.fan_in_fan_out else delta_OI
        )
    return weight
