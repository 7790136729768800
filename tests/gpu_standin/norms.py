"""torch's fused RMS norm on the stand-in: its gradient, and how many kernels CUDA has for it.

Counted by torch's ``aten/src/ATen/native/cuda/layer_norm_kernel.cu`` (of 2.9 and later; where
CuTe's kernels are installed, torch 2.13 takes those on an H100 and an H200, and they are no more).
R rows, N the size that is normalised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch._decomp import decompositions

_VECTOR = 4
"""Elements that are loaded at once; other sizes take a kernel for the statistics and another."""
_MANY_ROWS = 64 * 1024
_COLUMNS = 32
_PROCESSORS = 132
"""Of an H100 and an H200."""


def backward(
    grad_out: Tensor,
    hidden: Tensor,
    shape: list[int],
    rstd: Tensor,
    weight: Tensor | None,
    needed: list[bool],
) -> Any:
    """The gradients; torch has no kernel of its own for them on a CPU."""
    return decompositions._fused_rms_norm_backward(grad_out, hidden, shape, rstd, weight, needed)


def kernels(name: str, given: Sequence[Tensor], made: Sequence[Tensor]) -> int:
    """Kernels of the norm or its gradient; 0 of any other operation.

    Forward it is one. Backward the gradient of the input is one, and that of the weight another:
    many rows of a small size are summed in parts, which one more sums up.

    Args:
        name: The operation.
        given: Its tensors.
        made: What came of it.
    """
    if name == "_fused_rms_norm":
        copied = not given[0].is_contiguous()
        return 1 + copied + (given[0].shape[-1] % _VECTOR != 0)
    if name != "_fused_rms_norm_backward":
        return 0
    grad_out, hidden = given[:2]
    n = hidden.shape[-1]
    rows = hidden.numel() // n
    of_weight = sum(one.ndim == 1 for one in made)
    in_parts = rows > _MANY_ROWS and n / _COLUMNS < _PROCESSORS / 2
    copies = sum(not one.is_contiguous() for one in (grad_out, hidden))
    return copies + (len(made) - of_weight) + of_weight * (1 + in_parts)
