"""LoRA adapters in vLLM: beside the base model, one at a time, replaced at each sync.

In this process each adapter is loaded under a name of its own. For servers vLLM has a route that
loads an adapter (``/v1/load_lora_adapter``). It is not used: one that it replaces in place is read
from its folder again with every forward pass, and one under a new name leaves unfinished
completions to the old. Here a server starts with an adapter of zeros under the name that all
requests carry, and its workers are told to put another in its place.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import Adapter, EngineContext, MachineError
from rlvr_core.engines.vllm.transports import Fingerprint
from rlvr_core.lora.adapter import write_adapter

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest

NAME = "policy"
"""What servers call the adapter."""
NUMBER = 1
"""The number that vLLM gives to the first adapter it is started with."""


class Adapters:
    """The adapters of one engine.

    vLLM reads an adapter from a folder, and its prefix cache tells adapters apart by name and
    folder: each gets new ones.

    Args:
        llm: vLLM's ``LLMEngine``.
    """

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._place = Path(tempfile.mkdtemp(prefix="rlvr-adapter-"))
        self._numbers = itertools.count(1)
        self._current: LoRARequest | None = None

    def load(self, adapter: Adapter) -> LoRARequest:
        """Put an adapter in the place of the one before; requests have to name it.

        Raises:
            ValueError: If vLLM left some of its layers out.
            Exception: Whatever vLLM raised.
        """
        from vllm.lora.request import LoRARequest

        number = next(self._numbers)
        folder = self._place / str(number)
        folder.mkdir()
        write_adapter(folder, adapter)
        new = LoRARequest(f"policy-{number}", number, str(folder))
        if self._current is not None:
            self._llm.remove_lora(self._current.lora_int_id)
            shutil.rmtree(self._current.lora_path)
        self._current = new
        if not self._llm.add_lora(new):
            raise ValueError("vLLM did not load the adapter")
        (unused,) = self._llm.collective_rpc(unused_layers, args=(number,))
        if unused:
            raise ValueError(unsupported_layers(unused))
        return new

    def close(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self._place, ignore_errors=True)


def unsupported_layers(layers: Sequence[str]) -> str:
    """Message about an adapter of layers that vLLM's model lacks."""
    return f"vLLM has no place for the adapters of {len(layers)} layers: {', '.join(layers[:3])}"


def unused_layers(worker: Any, number: int) -> list[str]:
    """Names of an adapter's layers that vLLM's model lacks; vLLM itself does not report them."""
    manager = worker.model_runner.lora_manager._adapter_manager
    return sorted(set(manager.get_adapter(number).loras) - set(manager.modules))


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
        name, layer = _first_linear(context)
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


def _first_linear(context: EngineContext) -> tuple[str, torch.nn.Linear]:
    """Name and shape of the first linear layer, from the model's config: no weight is loaded."""
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


def server_options(zero: Path, room: int) -> list[str]:
    """Arguments of a server that is to take adapters.

    Args:
        zero: The adapter it starts with.
        room: The rank to make room for.
    """
    arguments = ["--enable-lora", "--max-loras", "1", "--max-lora-rank", str(room)]
    return [*arguments, "--lora-modules", json.dumps({"name": NAME, "path": str(zero)})]


def fingerprint_of(folder: Path) -> str:
    """Fingerprint of an adapter's matrices and config, read from its folder."""
    from safetensors import safe_open

    fingerprint = Fingerprint()
    with safe_open(folder / "adapter_model.safetensors", framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118
            fingerprint.add(name, tensors.get_tensor(name))
    config = hashlib.sha256((folder / "adapter_config.json").read_bytes()).hexdigest()
    return f"{fingerprint.digest()} {config[:16]}"


def load_into(worker: Any, folder: Path) -> tuple[str, list[str]]:
    """In a worker of vLLM: take the adapter of a folder in the place of the one before.

    Completions that are under way go on with it.

    Returns:
        Its fingerprint, and the layers for which vLLM's model has no place.
    """
    from vllm.lora.request import LoRARequest

    fingerprint = fingerprint_of(folder)
    request = LoRARequest(NAME, NUMBER, str(folder), load_inplace=True)
    if not worker.model_runner.lora_manager.add_adapter(request):
        raise ValueError("vLLM did not load the adapter")
    return fingerprint, unused_layers(worker, NUMBER)
