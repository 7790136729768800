"""Loading a model that each process is to hold a part of, without a whole copy in any.

transformers maps safetensors into memory where their dtype is the one asked for: a parameter is
then a view of the file, no copy. So the policy is asked for in the dtype of its files, sharded, and
its shard made float32. What a forward pass finds out about the architecture, a few layers tell.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rlvr_core.step.forward import probe_forward_path

if TYPE_CHECKING:
    from pathlib import Path

    from rlvr_core.config.model import ModelSection

_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"


def stored_dtype(path: str, section: ModelSection) -> torch.dtype:
    """The one dtype of a model's weights as they are stored.

    Returns:
        It; float32, which holds all of them exactly, where they differ or cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    dtypes = set()
    try:
        for file in _files(path, section):
            with safe_open(file, framework="pt") as tensors:
                dtypes |= {tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118
    except (OSError, ValueError, KeyError, SafetensorError):
        return torch.float32  # what is wrong with it, loading will say
    return _DTYPES.get(dtypes.pop(), torch.float32) if len(dtypes) == 1 else torch.float32


def _files(path: str, section: ModelSection) -> list[Path]:
    from pathlib import Path

    from transformers.utils.hub import cached_file

    def there(name: str) -> Path | None:
        file = cached_file(
            path,
            name,
            revision=section.revision,
            _raise_exceptions_for_missing_entries=False,
        )
        return None if file is None else Path(file)

    index = there(_INDEX)
    names = {_SINGLE}
    if index is not None:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return [file for name in sorted(names) if (file := there(name)) is not None]


def probe(model: Any) -> None:
    """Do what ``probe_forward_path`` does with a few layers, one of each shape.

    It reads no more of the files than these layers and the embedding.
    """
    try:
        with _few_layers(model):
            probe_forward_path(model)
    except Exception:  # a model's own code may count on all of its layers
        probe_forward_path(model)


@contextlib.contextmanager
def _few_layers(model: Any) -> Iterator[None]:
    names = set(getattr(model, "_no_split_modules", None) or ())
    cut: list[tuple[nn.ModuleList, dict[str, Any]]] = []
    for module in list(model.modules()):
        if (
            isinstance(module, nn.ModuleList)
            and {type(layer).__name__ for layer in module} <= names
        ):
            kinds = {
                tuple(p.shape for p in layer.parameters()): layer for layer in reversed(module)
            }
            cut.append((module, module._modules))
            few = [layer for layer in module if any(layer is kept for kept in kinds.values())]
            module._modules = {str(index): layer for index, layer in enumerate(few)}
    try:
        yield
    finally:
        for module, layers in cut:
            module._modules = layers
