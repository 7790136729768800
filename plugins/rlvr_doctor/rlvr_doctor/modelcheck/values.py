"""Counts NaN and infinite values in stored tensors."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr_doctor.modelcheck.stored import Stored

_LAYOUTS = {
    "F64": ("u8", 0x7FF0000000000000, 0x000FFFFFFFFFFFFF),
    "F32": ("u4", 0x7F800000, 0x007FFFFF),
    "BF16": ("u2", 0x7F80, 0x007F),
    "F16": ("u2", 0x7C00, 0x03FF),
    "F8_E5M2": ("u1", 0x7C, 0x03),
    "F8_E4M3": ("u1", 0x7F, 0x7F),  # no infinity: all bits set is NaN
}
"""By dtype: integer of the same size, and masks of exponent and mantissa."""
_CHUNK = 1 << 22


@dataclass(frozen=True, slots=True)
class Values:
    """Statistics of a tensor's values.

    Attributes:
        nan: Number of NaN values.
        infinite: Number of infinite values.
        constant: Whether all are one number, such as zero.
    """

    nan: int
    infinite: int
    constant: bool


def values_of(one: Stored) -> Values | None:
    """Read the values of a tensor in chunks; None for integers and unknown dtypes."""
    if one.tensor is not None:
        return _of_tensor(one) if one.tensor.is_floating_point() else None
    layout = _LAYOUTS.get(one.dtype)
    if layout is None or not one.numel:
        return None
    import numpy as np

    kind, exponent, mantissa = layout
    stored = np.memmap(one.file, dtype=f"<{kind}", mode="r", offset=one.start, shape=(one.numel,))
    nan = infinite = 0
    constant = True
    for start in range(0, one.numel, _CHUNK):
        bits = stored[start : start + _CHUNK]
        odd = bits[(bits & exponent) == exponent]
        if odd.size:
            nans = int(np.count_nonzero(odd & mantissa))
            nan += nans
            infinite += odd.size - nans
        constant = constant and bool(np.all(bits == stored[0]))
    return Values(nan, infinite, constant)


def _of_tensor(one: Stored) -> Values:
    nan = infinite = 0
    constant = True
    flat = one.tensor.reshape(-1)
    for start in range(0, one.numel, _CHUNK):
        part = flat[start : start + _CHUNK]
        nan += int(part.isnan().sum())
        infinite += int(part.isinf().sum())
        constant = constant and bool((part == flat[0]).all())
    return Values(nan, infinite, constant)
