"""Reads back the weights that a vLLM model computes with, by the names of the Hugging Face model.

What a layer computes with is not always what its parameters hold. On a CPU vLLM keeps a private
packed copy of every linear weight, which cannot be looked into: there the layer itself is asked.
Its output for the rows of a unit matrix is its weight, exact to the bit, whatever the layout.
Fused tensors are taken apart again. Of a model that is spread over several workers nothing is
read: each has a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlvr_core.api.services import weight_checksums

_UNIT_ROWS = 256
"""Rows of the unit matrix that go through a layer at once."""

Tensors = Iterator[tuple[str, Tensor]]


@torch.no_grad()
def fingerprint(worker: Any) -> dict[str, int]:
    """In a worker of vLLM: checksums of what its model computes with, in the run's precision.

    Returns:
        ``weight_checksums`` by name, as ``FingerprintsWeights`` has them; nothing where the model
        is spread over several workers.
    """
    config, runner = worker.vllm_config, worker.model_runner
    parallel = config.parallel_config
    if parallel.tensor_parallel_size * parallel.pipeline_parallel_size > 1:
        return {}
    packed = getattr(runner.model, "packed_modules_mapping", None) or {}
    return weight_checksums(held(runner.model, packed), config.model_config.dtype)


def held(model: nn.Module, packed: Mapping[str, Sequence[str]]) -> Tensors:
    """Yield the tensors that a model computes with, one by one.

    Args:
        model: VLLM's model.
        packed: By the name of a fused layer, the names of its parts.
    """
    for name, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if "weight" in own:
            own["weight"] = _weight(module, own["weight"])
        where = name.replace(".base_layer", "")
        for leaf, tensor in own.items():
            yield from _apart(where, leaf, tensor, module, packed)
        if hasattr(module, "lora_a_stacked"):
            yield from _adapter(where, module, packed)


def _weight(module: Any, weight: Tensor) -> Tensor:
    """The weight that a layer computes with."""
    kind = type(module).__name__
    # an embedding is looked up in its parameter; the head that shares it has a copy of its own
    if getattr(module, "cpu_linear", None) is not None and kind != "VocabParallelEmbedding":
        columns = weight.shape[1] if weight.numel() else int(module.input_size_per_partition)
        weight = _asked(module, weight, columns)
    rows = getattr(module, "org_vocab_size", None)  # the rest is padding
    return weight if rows is None else weight[:rows]


def _asked(module: Any, weight: Tensor, columns: int) -> Tensor:
    """The weight that a packed layer's products have."""
    parts = []
    for first in range(0, columns, _UNIT_ROWS):
        n = min(_UNIT_ROWS, columns - first)
        unit_NI = torch.zeros(n, columns, dtype=weight.dtype, device=weight.device)
        unit_NI.diagonal(first).fill_(1)
        parts.append(module.cpu_linear(unit_NI, module.weight, None))
    return torch.cat(parts).T


def _apart(
    where: str, leaf: str, tensor: Tensor, module: Any, packed: Mapping[str, Sequence[str]]
) -> Tensors:
    """Yield a tensor, or its parts if it is fused."""
    owner, _, last = where.rpartition(".")
    names, sizes = packed.get(last, ()), list(getattr(module, "output_partition_sizes", ()))
    if len(names) > 1 and len(names) == len(sizes) and sum(sizes) == len(tensor):
        parts = tensor.split(sizes)  # type: ignore[no-untyped-call]
        for name, part in zip(names, parts, strict=True):
            yield f"{owner}.{name}.{leaf}", part
    else:
        yield f"{where}.{leaf}" if where else leaf, tensor


def _adapter(where: str, module: Any, packed: Mapping[str, Sequence[str]]) -> Tensors:
    """Yield the matrices of the one adapter that a layer adds, as far as they are not padding."""
    owner, _, last = where.rpartition(".")
    names = [f"{owner}.{name}" for name in packed.get(last, ())] or [where]
    if len(names) != len(module.lora_a_stacked):
        names = [where]
    for name, a_SRI, b_SOR in zip(
        names, module.lora_a_stacked, module.lora_b_stacked, strict=False
    ):
        # room for a larger rank is padded with zeros, which change no checksum
        yield f"{name}.lora_A.weight", a_SRI[0, 0]
        yield f"{name}.lora_B.weight", b_SOR[0, 0]
