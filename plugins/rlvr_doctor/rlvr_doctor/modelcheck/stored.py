"""Lists tensors in files of weights without loading them: safetensors and PyTorch files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_doctor.examination.report import first_line
from rlvr_doctor.modelcheck.report import BrokenPartError

SIZES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
"""Bytes per element, by dtype name in safetensors."""
NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
_LFS = b"version https://git-lfs"
_AGAIN = "fetch it again, and compare its size with the original's"


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor in a file.

    Attributes:
        name: Its name.
        file: The file.
        dtype: Its dtype name in safetensors.
        shape: Its shape.
        start: Offset of its first byte in the file.
        stop: Offset after its last byte.
        tensor: The tensor itself, if the file is not safetensors.
    """

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int
    tensor: Any = None

    @property
    def n_bytes(self) -> int:
        """Size in bytes."""
        return self.stop - self.start

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def read_file(file: Path) -> dict[str, Stored]:
    """Return the tensors of a file of weights by name.

    Raises:
        BrokenPartError: If it is incomplete or damaged.
    """
    try:
        with file.open("rb") as opened:
            head = opened.read(len(_LFS))
        if head == _LFS:
            raise broken(
                f"{file.name} is a pointer of Git LFS, not the weights",
                "fetch the weights: git lfs pull",
            )
        return _safetensors(file) if file.suffix == ".safetensors" else _pickled(file)
    except OSError as error:
        raise broken(f"{file.name} cannot be read: {error.strerror or error}", _AGAIN) from None


def broken(text: str, remedy: str) -> BrokenPartError:
    """Return the error for broken weights."""
    return BrokenPartError("weights", text, remedy)


def _safetensors(file: Path) -> dict[str, Stored]:
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if size < 8 or length > size - 8:
            what = f"{file.name} is cut off in its header, or no safetensors file ({size:,} bytes)"
            raise broken(what, _AGAIN)
        text = opened.read(length)
    try:
        header = json.loads(text)
        found = {
            name: _entry(name, file, one, 8 + length)
            for name, one in header.items()
            if name != "__metadata__"
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        what = f"{file.name} has no readable header of safetensors ({first_line(error)})"
        raise broken(what, _AGAIN) from None
    _check_extent(file, size, 8 + length, found)
    return found


def _entry(name: str, file: Path, one: Mapping[str, Any], base: int) -> Stored:
    start, stop = one["data_offsets"]
    shape = tuple(int(n) for n in one["shape"])
    found = Stored(name, file, str(one["dtype"]), shape, base + start, base + stop)
    size = SIZES.get(found.dtype)
    if start < 0 or min(shape, default=0) < 0 or (size and size * found.numel != stop - start):
        raise ValueError(f"{name} of shape {list(shape)} has {stop - start} bytes")
    return found


def _check_extent(file: Path, size: int, base: int, tensors: Mapping[str, Stored]) -> None:
    """Check that the tensors fill a file without gaps, as safetensors requires."""
    end = base
    for tensor in sorted(tensors.values(), key=lambda one: (one.start, one.stop)):
        if tensor.start != end:
            raise broken(f"{file.name} has a gap or an overlap before {tensor.name}", _AGAIN)
        end = tensor.stop
    if size < end:
        raise broken(f"{file.name} is cut off: {size:,} of {end:,} bytes", _AGAIN)
    if size > end:
        raise broken(f"{file.name} has {size - end:,} bytes too many behind its tensors", _AGAIN)


def _pickled(file: Path) -> dict[str, Stored]:
    """Read a file of PyTorch without running any code in it."""
    import torch

    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        tensors = {name: one for name, one in loaded.items() if isinstance(one, torch.Tensor)}
    except OSError:
        raise
    except Exception as error:
        raise broken(f"{file.name} cannot be read: {first_line(error)}", _AGAIN) from None
    codes = {name: code for code, name in NAMES.items()}
    found = {}
    for name, one in tensors.items():
        kind = str(one.dtype).removeprefix("torch.")
        found[name] = Stored(
            name, file, codes.get(kind, kind), tuple(one.shape), 0, one.nbytes, one
        )
    return found
