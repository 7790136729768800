"""Weights of a model with LoRA adapters in it, as if it had none; and the adapter alone.

peft puts a layer of its own in the place of each adapted one: ``base_layer``, and by adapter name
the matrices ``lora_A`` (rank, in) and ``lora_B`` (out, rank). Nothing here imports peft.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rlvr_core.api import Adapter

POLICY = "default"  # the name under which peft loads an adapter when it is given none
WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
_PREFIX = "base_model.model."  # where peft's wrapper keeps the model


def is_adapted(module: nn.Module) -> bool:
    """Whether a module is a layer with LoRA adapters beside it."""
    return isinstance(getattr(module, "base_layer", None), nn.Module) and hasattr(module, "lora_A")


def is_plain_linear(module: Any) -> bool:
    """Whether a module is a linear layer, or one whose adapters only add to its weight.

    With dropout at work, an adapter's part depends on more than its weights.
    """
    if type(module) is nn.Linear:
        return True
    return (
        (type(module).__module__, type(module).__name__) == ("peft.tuners.lora.layer", "Linear")
        and type(module.base_layer) is nn.Linear
        and not module.merged
        and not module.lora_variant
        and not any(module.lora_bias.values())
        and not any(type(d) is nn.Dropout and d.training for d in module.lora_dropout.values())
    )


def weight_of(module: Any) -> Tensor:
    """The weight a linear layer computes with, adapters added; differentiable."""
    weight: Tensor = module.weight
    return _with_adapters(module, weight) if is_adapted(module) else weight


def merged_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters by the names they have without adapters, those added to the weights.

    A tied weight comes once. Sharded ones are gathered: every process has to iterate.
    """
    adapted = {name: module for name, module in model.named_modules() if is_adapted(module)}
    for name, parameter in model.named_parameters():
        owner, base, leaf = name.rpartition(".base_layer.")
        if base and owner in adapted:
            weight = _whole(parameter).detach()
            if leaf == "weight":
                weight = _with_adapters(adapted[owner], weight)
            yield f"{owner}.{leaf}", weight.detach()
        elif not any(part.startswith("lora_") for part in name.split(".")):
            yield name, _whole(parameter).detach()


def matrices(model: nn.Module, adapter: str = POLICY) -> dict[str, nn.Parameter]:
    """The matrices of an adapter by their names in the model."""
    return {
        name: p
        for name, p in model.named_parameters()
        if f".{adapter}." in name and ".lora_" in name
    }


def name_in_file(name: str) -> str:
    """What a matrix of the policy's adapter is called in peft's file."""
    return _PREFIX + name.replace(f".{POLICY}.", ".")


def adapter_of(model: Any, tensors: dict[str, Tensor] | None = None) -> Adapter:
    """The policy's adapter, as peft saves it. If it is sharded every process has to ask.

    Args:
        model: The policy.
        tensors: Its ``matrices``, whole; gathered here when left out.
    """
    if tensors is None:
        tensors = {name: _whole(matrix.detach()) for name, matrix in matrices(model).items()}
    config = model.peft_config[POLICY].to_dict()
    config["target_modules"] = sorted(config["target_modules"])
    named = {name_in_file(name): tensor.cpu().contiguous() for name, tensor in tensors.items()}
    return Adapter(named, config)


def write_adapter(folder: Path, adapter: Adapter) -> None:
    """Write an adapter into an existing folder; peft and vLLM load it."""
    from safetensors.torch import save_file

    save_file(adapter.tensors, folder / WEIGHTS, metadata={"format": "pt"})
    text = json.dumps(adapter.config, indent=2, sort_keys=True)
    (folder / CONFIG).write_text(text, encoding="utf-8")


def _with_adapters(layer: Any, weight: Tensor) -> Tensor:
    if layer.disable_adapters:
        return weight
    for name in layer.active_adapters:
        a_RI, b_OR = (_whole(half[name].weight) for half in (layer.lora_A, layer.lora_B))
        # a weight in half precision is added to in that of the adapter
        delta_OI = layer.scaling[name] * (b_OR @ a_RI)
        weight = weight.to(torch.promote_types(weight.dtype, delta_OI.dtype)) + (
            delta_OI.T if layer.fan_in_fan_out else delta_OI
        )
    return weight


def _whole(tensor: Any) -> Tensor:
    gather = getattr(tensor, "full_tensor", None)
    whole: Tensor = tensor if gather is None else gather()
    return whole
