"""Reads files of weights, safetensors and PyTorch ones, without copying the tensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_core.api import one_line

_LFS = b"version https://git-lfs"
_AGAIN = "fetch it again, and compare its size with the original's"
_CHUNK = 1 << 22


class BrokenPartError(Exception):
    """A part of a model cannot be used, so checks that depend on it are skipped.

    Attributes:
        part: ``config``, ``weights``, ``tokenizer`` or ``architecture``.
        text: The fault.
        remedy: How to repair it.
    """

    def __init__(self, part: str, text: str, remedy: str) -> None:
        super().__init__(text)
        self.part, self.text, self.remedy = part, text, remedy


def broken(text: str, remedy: str) -> BrokenPartError:
    """Return the error for broken weights."""
    return BrokenPartError("weights", text, remedy)


def read_file(file: Path) -> dict[str, Any]:
    """Return the tensors of a file by name; their values are mapped into memory, not read.

    No code in the file is run.

    Raises:
        BrokenPartError: If it is incomplete or damaged.
    """
    import torch
    from safetensors import safe_open

    try:
        with file.open("rb") as opened:
            is_pointer = opened.read(len(_LFS)) == _LFS
        if is_pointer:
            raise broken(
                f"{file.name} is a pointer of Git LFS, not the weights",
                "fetch the weights: git lfs pull",
            )
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as stored:
                return {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        loaded = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        return {name: value for name, value in loaded.items() if isinstance(value, torch.Tensor)}
    except OSError as error:
        raise broken(f"{file.name} cannot be read: {error.strerror or error}", _AGAIN) from None
    except BrokenPartError:
        raise
    except Exception as error:
        what = "is cut off or damaged" if file.suffix == ".safetensors" else "cannot be read"
        raise broken(f"{file.name} {what}: {one_line(error)}", _AGAIN) from None


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


def values_of(tensor: Any) -> Values | None:
    """Read the values of a tensor in chunks; None if they are integers, or there are none."""
    if not tensor.is_floating_point() or not tensor.numel():
        return None
    nan = infinite = 0
    constant = True
    flat = tensor.reshape(-1)
    for start in range(0, flat.numel(), _CHUNK):
        chunk = flat[start : start + _CHUNK]
        if chunk.itemsize == 1:  # torch has no isnan for numbers of 8 bits
            chunk = chunk.float()
        nan += int(chunk.isnan().sum())
        infinite += int(chunk.isinf().sum())
        constant = constant and bool((chunk == flat[0].to(chunk.dtype)).all())
    return Values(nan, infinite, constant)
