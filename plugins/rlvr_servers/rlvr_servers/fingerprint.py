"""Fingerprints of what is sent to vLLM servers.

Both ends make one of what passes, so that a lost or changed tensor is an error.
"""

import hashlib

import torch
from torch import Tensor

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Fingerprint:
    """A fingerprint of a stream of weights: equal at both ends of a transfer, or it went wrong.

    Tensors come in any order. Of each it takes the name, type, shape and the sum of its bits as
    integers: exact, so the same on every device whatever the order of the additions, and cheap.
    """

    def __init__(self) -> None:
        self._parts: dict[str, str] = {}

    def add(self, name: str, tensor: Tensor) -> None:
        """Add a tensor of any dtype and shape."""
        bits = tensor.detach().contiguous().view(_INTEGERS[tensor.element_size()])
        total = int(bits.sum(dtype=torch.int64))
        self._parts[name] = f"{name} {tensor.dtype} {tuple(tensor.shape)} {total}"

    def __len__(self) -> int:
        """Number of tensors added."""
        return len(self._parts)

    def digest(self) -> str:
        """Return 32 hexadecimal digits over everything added."""
        text = "\n".join(self._parts[name] for name in sorted(self._parts))
        return hashlib.sha256(text.encode()).hexdigest()[:32]
