"""Counts NaN and infinite values in stored tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rlvr_core.builtin.modelcheck.report import BrokenPartError
from rlvr_core.builtin.modelcheck.stored import Stored

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
        zero: Whether all are zero.
        constant: Whether all are one number.
    """

    nan: int
    infinite: int
    zero: bool
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
    zero = constant = True
    for start in range(0, one.numel, _CHUNK):
        bits = stored[start : start + _CHUNK]
        odd = bits[(bits & exponent) == exponent]
        if odd.size:
            nans = int(np.count_nonzero(odd & mantissa))
            nan += nans
            infinite += odd.size - nans
        zero = zero and not np.any(bits & (exponent | mantissa))
        constant = constant and bool(np.all(bits == stored[0]))
    return Values(nan, infinite, zero, constant or zero)


def _of_tensor(one: Stored) -> Values:
    nan = infinite = 0
    zero = constant = True
    flat = one.tensor.reshape(-1)
    for start in range(0, one.numel, _CHUNK):
        part = flat[start : start + _CHUNK]
        nan += int(part.isnan().sum())
        infinite += int(part.isinf().sum())
        zero = zero and not bool(part.any())
        constant = constant and bool((part == flat[0]).all())
    return Values(nan, infinite, zero, constant)


@dataclass(frozen=True, slots=True)
class Odd:
    """Tensors of a model that no training leaves behind.

    Attributes:
        n: Number of tensors that were read.
        infinite: Names of those with values that are NaN or infinite.
        constant: Names of the matrices that are one number throughout, most often zero.
    """

    n: int
    infinite: tuple[str, ...]
    constant: tuple[str, ...]


def odd_of(tensors: Iterable[Stored]) -> Odd:
    """Read tensors, and return the odd ones."""
    n, infinite, constant = 0, list[str](), list[str]()
    for one in tensors:
        found = values_of(one)
        if found is None:
            continue
        n += 1
        if found.nan or found.infinite:
            infinite.append(one.name)
        # adapters begin with a zero matrix; a vector of ones is a new norm
        elif found.constant and len(one.shape) > 1 and one.numel > 1 and ".lora_B" not in one.name:
            constant.append(one.name)
    return Odd(n, tuple(infinite), tuple(constant))


def odd_tensors(path: str, largest: int, most: int) -> Odd:
    """The service ``core/odd-tensors``: look at the weights of a model's folder.

    Args:
        path: The folder; of anything else, no tensor is read.
        largest: Bytes of a tensor up to which it is read.
        most: Bytes of all tensors that are read.
    """
    from rlvr_core.builtin.modelcheck.subject import Subject

    if not Path(path).is_dir():
        return Odd(0, (), ())
    try:
        stored = Subject(path, Path(path)).weights.tensors.values()
    except BrokenPartError:
        return Odd(0, (), ())  # loading the model says what is wrong with its files
    some, amount = [], 0
    for one in stored:
        if one.n_bytes <= largest and amount + one.n_bytes <= most:
            amount += one.n_bytes
            some.append(one)
    return odd_of(some)
