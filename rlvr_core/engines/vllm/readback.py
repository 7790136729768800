"""Reads back the weights that a vLLM model computes with, by the names of the Hugging Face model.

What a layer computes with is not always what its parameters hold. On a CPU vLLM keeps a private
packed copy of every linear weight, which cannot be looked into: there the layer itself is asked.
Its output for the rows of a unit matrix is its weight, exact to the bit, whatever the layout.
Fused tensors are taken apart again. Of a model that is split over several processes each reads its
shards, and says where in the whole tensors they lie; ``whole`` puts their checksums together. Of a
server with several workers nothing is read. A layer of an unknown kind is left out, and named once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rlvr_core.api import one_line
from rlvr_core.engines.sync import weight_checksums

logger = logging.getLogger(__name__)

_UNKNOWN: set[str] = set()
"""Kinds of layers that could not be read, each of which is named once."""
_UNIT_ROWS = 256
"""Rows of the unit matrix that go through a layer at once."""

_COLUMN = -(3**33)
"""How ``weight_checksums`` weighs the place of a column, where that of a row counts 1."""


class Shard(NamedTuple):
    """Checksum of a part of a tensor, and where in the whole one it begins."""

    checksum: int
    row: int = 0
    column: int = 0


Tensors = Iterator[tuple[str, Tensor, tuple[int, int]]]
"""Name, tensor, and the row and column at which it begins in the whole one."""


@torch.no_grad()
def fingerprint(worker: Any) -> dict[str, Shard]:
    """Return checksums of a vLLM worker's weights, in the run's precision.

    Returns:
        ``weight_checksums`` by name, as ``FingerprintsWeights`` has them, of this worker's shards.
    """
    model, dtype = worker.model_runner.model, worker.vllm_config.model_config.dtype
    packed = getattr(model, "packed_modules_mapping", None) or {}
    places: dict[str, tuple[int, int]] = {}

    def tensors() -> Iterator[tuple[str, Tensor]]:
        for name, tensor, places[name] in held(model, packed):
            yield name, tensor

    sums = weight_checksums(tensors(), dtype)
    return {name: Shard(checksum, *places[name]) for name, checksum in sums.items()}


def whole(parts: Iterable[Mapping[str, Shard]]) -> dict[str, int]:
    """Put the checksums of shards together to those of whole tensors.

    Copies that should be alike and are not, as of a norm in each process, count twice, so that the
    checksum matches nothing.

    Args:
        parts: What each process has.
    """
    shards: dict[str, set[Shard]] = {}
    for part in parts:
        for name, shard in part.items():
            shards.setdefault(name, set()).add(shard)
    return {name: _together(some) for name, some in shards.items()}


def _together(shards: Iterable[Shard]) -> int:
    total = placed = 0
    for checksum, row, column in shards:
        # each row and column counts as often as its number, which is higher in the whole tensor
        part = checksum >> 64
        total += part
        placed += checksum % 2**64 + (row + _COLUMN * column) * part
    return (total << 64) + placed % 2**64


def held(model: nn.Module, packed: Mapping[str, Sequence[str]]) -> Tensors:
    """Yield the tensors that a model computes with, one by one, or this process's shards of them.

    Args:
        model: VLLM's model.
        packed: By the name of a fused layer, the names of its parts.
    """
    for name, module in model.named_modules():
        try:
            tensors = list(_of_layer(name.replace(".base_layer", ""), module, packed))
        except Exception as error:  # layers of new models may be made in any way
            kind = type(module).__name__
            if kind not in _UNKNOWN:
                _UNKNOWN.add(kind)
                logger.warning(
                    "weights that vLLM holds in a %s are not read back: %s", kind, one_line(error)
                )
            continue
        yield from tensors


def _of_layer(where: str, module: Any, packed: Mapping[str, Sequence[str]]) -> Tensors:
    tensors = dict(module.named_parameters(recurse=False))
    if "weight" in tensors:
        tensors["weight"] = _weight(module, tensors["weight"])
    for leaf, tensor in tensors.items():
        yield from _apart(where, leaf, tensor, module, packed)
    if hasattr(module, "lora_a_stacked"):
        yield from _adapter(where, module, packed)


def _weight(module: Any, weight: Tensor) -> Tensor:
    """The weight that a layer computes with."""
    kind = type(module).__name__
    # an embedding is looked up in its parameter; the head that shares it has a copy of its own
    if getattr(module, "cpu_linear", None) is not None and kind != "VocabParallelEmbedding":
        columns = weight.shape[1] if weight.numel() else _columns(module)
        weight = _asked(module, weight, columns)
    if hasattr(module, "org_vocab_size"):
        return weight[: module.shard_indices.num_org_elements]  # the rest is padding
    return weight


def _columns(module: Any) -> int:
    """Columns of this process's part of a weight; a layer that is never split has no parts."""
    return int(getattr(module, "input_size_per_partition", None) or module.input_size)


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
    """Yield a tensor, or its parts if it is fused, and where it lies in the whole one."""
    owner, _, last = where.rpartition(".")
    names, sizes = packed.get(last, ()), list(getattr(module, "output_partition_sizes", ()))
    if len(names) > 1 and len(names) == len(sizes) and sum(sizes) == len(tensor):
        parts = tensor.split(sizes)  # type: ignore[no-untyped-call]
        for place, (name, part) in enumerate(zip(names, parts, strict=True)):
            row = _index(module, shared=place > 0) * len(part)
            yield f"{owner}.{name}.{leaf}", part, (row, 0)
    else:
        yield f"{where}.{leaf}" if where else leaf, tensor, _place(module, tensor)


def _index(module: Any, *, shared: bool) -> int:
    """Return the number of a layer's shard; 0 if it is whole. Key-value heads may be ``shared``."""
    split = hasattr(module, "gather_output") or hasattr(module, "reduce_results")
    index = int(module.tp_rank) if split and hasattr(module, "tp_rank") else 0
    return index // int(getattr(module, "num_kv_head_replicas", 1)) if shared else index


def _place(module: Any, tensor: Tensor) -> tuple[int, int]:
    """Row and column of the whole tensor at which a layer's begins."""
    if hasattr(module, "org_vocab_size"):
        return int(module.shard_indices.org_vocab_start_index), 0
    if hasattr(module, "input_size_per_partition") and hasattr(module, "reduce_results"):
        # split by columns; its bias is whole
        return 0, _index(module, shared=False) * tensor.shape[1] if tensor.ndim > 1 else 0
    return _index(module, shared=False) * len(tensor), 0


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
        yield f"{name}.lora_A.weight", a_SRI[0, 0], (0, 0)
        yield f"{name}.lora_B.weight", b_SOR[0, 0], (0, 0)
