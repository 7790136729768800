"""LoRA adapters on vLLM servers: beside the base model, under one name, replaced at each sync.

vLLM has a route that loads an adapter (``/v1/load_lora_adapter``). It is not used: one that it
replaces in place is read from its folder again with every forward pass, and one under a new name
leaves unfinished completions to the old. Here a server starts with an adapter of zeros under the
name that all requests carry, and its workers are told to put another in its place.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import torch

from rlvr_core.api import Adapter, EngineContext, MachineError
from rlvr_core.builtin.lora.adapter import CONFIG, WEIGHTS, write_adapter
from rlvr_core.engines.fingerprint import Fingerprint

NAME = "policy"
"""What servers call the adapter."""
NUMBER = 1
"""The number that vLLM gives to the first adapter it is started with."""


class AdapterFolder:
    """The adapter that was sent last, in a folder that servers on this machine read.

    Args:
        parent: Of the folders; private to this run.
    """

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._numbers = itertools.count(1)
        self.current: Path | None = None
        self.zero = parent / "adapter-zero"

    def write_zero(self, context: EngineContext) -> None:
        """Write the adapter that servers start with: it adds nothing to one layer."""
        name, layer = _a_layer(context)
        tensors = {
            f"base_model.model.{name}.lora_A.weight": torch.zeros(1, layer.in_features),
            f"base_model.model.{name}.lora_B.weight": torch.zeros(layer.out_features, 1),
        }
        config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1}
        self.zero.mkdir()
        leaf = name.rpartition(".")[2]
        write_adapter(self.zero, Adapter(tensors, config | {"target_modules": [leaf]}))

    def write(self, adapter: Adapter) -> str:
        """Keep an adapter in the place of the one before; its fingerprint."""
        folder = self._parent / f"adapter-{next(self._numbers)}"
        folder.mkdir()
        write_adapter(folder, adapter)
        before, self.current = self.current, folder
        if before is not None:
            shutil.rmtree(before, ignore_errors=True)
        return fingerprint_of(folder)


def _a_layer(context: EngineContext) -> tuple[str, torch.nn.Linear]:
    """The first linear layer of a model, which itself is elsewhere."""
    from transformers import AutoConfig, AutoModelForCausalLM

    trust = {"trust_remote_code": context.trust_remote_code}
    config = AutoConfig.from_pretrained(context.model_path, **trust)
    make: Any = AutoModelForCausalLM.from_config
    with torch.device("meta"):
        model = make(config, **trust)
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and layer is not model.get_output_embeddings():
            return name, layer
    raise MachineError(
        f"the model of '{context.model_path}' has no linear layers, so vLLM has no adapters for it",
        where="engine.with.lora",
        remedy="set it to merged",
    )


def options(zero: Path, room: int) -> list[str]:
    """Arguments of a server that is to take adapters.

    Args:
        zero: The adapter it starts with.
        room: The rank to make room for.
    """
    words = ["--enable-lora", "--max-loras", "1", "--max-lora-rank", str(room)]
    return [*words, "--lora-modules", json.dumps({"name": NAME, "path": str(zero)})]


def fingerprint_of(folder: Path) -> str:
    """Of an adapter's matrices and its config, as they lie there."""
    from safetensors import safe_open

    found = Fingerprint()
    with safe_open(folder / WEIGHTS, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118
            found.add(name, tensors.get_tensor(name))
    config = hashlib.sha256((folder / CONFIG).read_bytes()).hexdigest()
    return f"{found.digest()} {config[:16]}"


def load(worker: Any, folder: Path) -> tuple[str, list[str]]:
    """In a worker of vLLM: take the adapter of a folder in the place of the one before.

    Completions that are under way go on with it.

    Returns:
        Its fingerprint, and the layers for which vLLM's model has no place.
    """
    from vllm.lora.request import LoRARequest

    from rlvr_core.builtin.vllm.lora import unused_layers

    told = fingerprint_of(folder)
    request = LoRARequest(NAME, NUMBER, str(folder), load_inplace=True)
    if not worker.model_runner.lora_manager.add_adapter(request):
        raise ValueError("vLLM did not load the adapter")
    return told, unused_layers(worker, NUMBER)
