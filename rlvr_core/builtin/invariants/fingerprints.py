"""Fingerprints of tensors: whole and exact, or of a sample of elements."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api.services import weight_checksums

if TYPE_CHECKING:
    from torch import Tensor

SAMPLE = 64
"""Elements of a tensor in a sampled fingerprint."""


def local(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that is in this process."""
    part: Any = tensor.detach()
    if is_sharded(part):
        part = part.to_local()
    whole: Tensor = part
    return whole


def is_sharded(tensor: Tensor) -> bool:
    """Whether other processes have parts of the tensor."""
    sharding = sys.modules.get("torch.distributed.tensor")  # loaded by whoever shards
    return sharding is not None and isinstance(tensor, sharding.DTensor)


def checksums(tensors: Iterable[Tensor]) -> list[int]:
    """Return a sum over the bits of each tensor's local part; any change of one changes it.

    Changes of several elements cancel with odds of about 1 in 2^32.
    """
    named = ((str(number), local(one)) for number, one in enumerate(tensors))
    return list(weight_checksums(named).values())


def sampled(tensors: Iterable[Tensor]) -> int:
    """Return a checksum over ``SAMPLE`` elements of the local part of each tensor."""
    parts = []
    for tensor in tensors:
        flat = local(tensor).reshape(-1)
        stride = max(1, len(flat) // SAMPLE)
        parts.append(flat[::stride][:SAMPLE].float())
    if not parts:
        return 0
    return zlib.crc32(torch.cat(parts).cpu().numpy().tobytes())
