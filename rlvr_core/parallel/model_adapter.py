"""Chooses the trained parameters of a policy: all, or those of an adapter."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rlvr_core.api import Adapter
from rlvr_core.api.forward import ModelAdapter
from rlvr_core.parallel.sharded import whole


class WholeModel:
    """Trains every parameter of the policy; see ``ModelAdapter``."""

    keeps_base = False

    def check_installed(self) -> None:
        """Do nothing: no further package is needed."""

    def lines(self, section: Any) -> list[str]:
        """Return no lines: training the whole model is the usual case."""
        return []

    def install(self, model: Any, section: Any, **_: Any) -> None:
        """Do nothing: the model stays as it is."""

    def trained_tensors(self, model: Any) -> dict[str, Tensor]:
        """Parameters and persistent buffers by name, a tied one once."""
        parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
        tied = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        buffers = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
        return parameters | buffers

    def merged_tensors(self, model: Any) -> Iterator[tuple[str, Tensor]]:
        """The parameters; there is nothing to merge."""
        for name, parameter in model.named_parameters():
            yield name, whole(parameter).detach()

    def adapter(self, model: Any) -> Adapter:
        """See ``ModelAdapter``."""
        raise ValueError("the policy is trained whole: there is no adapter")

    def save(
        self, folder: Path, model: Any, tensors: dict[str, Tensor], dtype: torch.dtype
    ) -> None:
        """Write a folder that anyone can load, and the float32 weights where it rounds."""
        export_weights(folder, tensors, model, dtype)
        if dtype != torch.float32:
            master = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
            save_file(master, folder / "trainer" / "master.safetensors")

    def load(self, folder: Path, model: Any) -> dict[str, Tensor]:
        """The float32 weights."""
        master = folder / "trainer" / "master.safetensors"
        return load_file(master if master.is_file() else folder / "model.safetensors")

    def dropout(self, model: Any, *key: int) -> contextlib.AbstractContextManager[None]:
        """Do nothing: dropout stays off, as both log-probs of a ratio need the same function."""
        return contextlib.nullcontext()

    def add_reference(self, model: Any) -> None:
        """See ``ModelAdapter``."""
        raise ValueError(_NO_BASE)

    def as_reference(self, model: Any, *, moving: bool) -> contextlib.AbstractContextManager[None]:
        """See ``ModelAdapter``."""
        raise ValueError(_NO_BASE)

    def reference_pairs(self, model: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Return no pairs."""
        return iter(())


_NO_BASE = "the policy is trained whole: its reference is a model of its own"

WHOLE_MODEL: ModelAdapter = WholeModel()


def chosen_adapter(section: object | None) -> ModelAdapter:
    """Return the model adapter of the config; its library is not imported yet."""
    return WHOLE_MODEL if section is None else _lora()


def adapter_of(model: nn.Module) -> ModelAdapter:
    """Return the model adapter that was installed in a model."""
    return _lora() if "peft_config" in vars(model) else WHOLE_MODEL


@cache
def _lora() -> ModelAdapter:
    from rlvr_core.lora.model_adapter import LORA

    return LORA


def export_weights(
    folder: Path, tensors: dict[str, Tensor], model: Any, dtype: torch.dtype
) -> None:
    """Write weights and configurations as transformers and vLLM load them.

    Args:
        folder: Where.
        tensors: The weights, whole, by name.
        model: Its configurations are written.
        dtype: What the weights are rounded to.
    """
    exported = {
        name: (tensor.to(dtype) if tensor.is_floating_point() else tensor).cpu().contiguous()
        for name, tensor in tensors.items()
    }
    save_file(exported, folder / "model.safetensors", metadata={"format": "pt"})
    export_config(folder, model, dtype)


def export_config(folder: Path, model: Any, dtype: torch.dtype) -> None:
    """Write the configurations of a model whose weights are in a dtype."""
    config = model.config.to_dict()
    config["dtype"] = str(dtype).removeprefix("torch.")
    type(model.config).from_dict(config).save_pretrained(folder)
    if model.can_generate() and model.generation_config is not None:
        # as it was read: save_pretrained refuses what many published models have
        file = folder / "generation_config.json"
        model.generation_config.to_json_file(file, keys_to_pop=["compile_config"])
