"""The trainer's side of a weight sync: the stream of weights, and checksums of what arrived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlvr_core.api import Adapter
from rlvr_core.parallel.model_adapter import adapter_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """The weights of a module, straight from its parameters.

    Attributes:
        module: The trainer's model. Parameters may be sharded (FSDP); then every rank has to
            iterate, because gathering a shard is a collective.
    """

    module: PreTrainedModel

    @property
    def sharded(self) -> bool:
        """False: the whole model is in this process."""
        return False

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Full tensors by Hugging Face name, a tied weight once, adapters merged; no graph."""
        return adapter_of(self.module).merged_tensors(self.module)

    def adapter(self) -> Adapter:
        """The LoRA adapter alone."""
        return adapter_of(self.module).adapter(self.module)


@torch.no_grad()
def weight_checksums(
    tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype | None = None
) -> dict[str, int]:
    """Return a checksum over the bits of each tensor, read as integers, by its name.

    Its upper part, ``checksum >> 64``, is their sum: the same whatever the order of the elements,
    and sums of tensors that are put together add up. The lower 64 bits weigh rows and columns by
    their places, so that they change when elements change places. -0.0 counts as 0.0.

    Args:
        tensors: Whole tensors by name.
        dtype: What they are rounded to first; None for their own.
    """
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums: dict[str, Tensor] = {}
    for name, tensor in tensors:
        whole_RC = tensor.detach().flatten(1) if tensor.ndim > 1 else tensor.detach().view(-1, 1)
        row_sums, column_sums = list[Tensor](), list[Tensor]()
        # in parts that stay in a processor's cache
        most = 2**17 if tensor.device.type == "cpu" else 2**25
        rows = max(1, most // max(1, whole_RC.shape[1]))
        for part in whole_RC.split(rows):  # type: ignore[no-untyped-call]
            kept = (part.to(dtype or part.dtype) + 0).contiguous()
            bits = kept.view(integers[kept.element_size()]).long()
            row_sums.append(bits.sum(1))
            column_sums.append(bits.sum(0))
        row_R, column_C = torch.cat(row_sums), torch.stack(column_sums).sum(0)
        # sums of sums: each row and column counts as often as its number
        placed = row_R.flip(0).cumsum(0).sum() - 3**33 * column_C.flip(0).cumsum(0).sum()
        sums[name] = torch.stack([row_R.sum(), placed])
    # one transfer from the device
    pairs = torch.stack([pair.cpu() for pair in sums.values()]).tolist() if sums else []
    return {name: (a << 64) + b % 2**64 for name, (a, b) in zip(sums, pairs, strict=True)}


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Switch training off in the block; the flags of all layers are restored after it."""
    training = [child for child in module.modules() if child.training]
    module.eval()
    try:
        yield
    finally:
        for child in training:
            child.training = True
