"""The trainer's weights on their way to vLLM servers, and the copy of them a new server gets."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlvr_core.api import MachineError
from rlvr_core.engines.fingerprint import Fingerprint

if TYPE_CHECKING:
    from rlvr_core.api import WeightSource

_PART_BYTES = 1 << 30
_SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "rlvr-weights-"
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Meta:
    """A tensor that will be sent.

    Attributes:
        name: Hugging Face name.
        dtype: As sent.
        shape: As sent.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class Outgoing:
    """One pass over the trainer's weights, as they are sent.

    Matrices are rounded to the run's precision on this side, as vLLM would on its own: half the
    bytes of float32 masters. Vectors go as they are; some models keep those in float32.

    Args:
        source: The trainer's weights.
        dtype: Precision of the run.
        snapshot: Also keeps them; None for no copy.
    """

    def __init__(
        self, source: WeightSource, dtype: torch.dtype, snapshot: Snapshot | None = None
    ) -> None:
        self._source, self._dtype, self._snapshot = source, dtype, snapshot
        self.fingerprint = Fingerprint()

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Names and tensors; afterwards ``fingerprint`` and the snapshot are complete."""
        self.fingerprint = Fingerprint()
        if self._snapshot is not None:
            self._snapshot.clear()
        for name, tensor in self._source.tensors():
            sent = tensor.to(self._dtype) if _is_matrix(tensor) else tensor
            self.fingerprint.add(name, sent)
            if self._snapshot is not None:
                self._snapshot.add(name, sent)
            yield name, sent
        if self._snapshot is not None:
            self._snapshot.finish()

    def metadata(self) -> list[Meta]:
        """What iterating will yield. A sharded policy is gathered for it: every process asks."""
        return [
            Meta(name, self._dtype if _is_matrix(tensor) else tensor.dtype, tuple(tensor.shape))
            for name, tensor in self._source.tensors()
        ]


def n_bytes(meta: Sequence[Meta]) -> int:
    """What will be sent, in bytes."""
    return sum(math.prod(one.shape) * one.dtype.itemsize for one in meta)


def _is_matrix(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.ndim > 1


class Snapshot:
    """The last weights sent, in files of one gigabyte that a server can read.

    In shared memory where there is room, so that nothing is written to a disk. What is old is
    removed before the new comes: one copy exists at a time.

    Args:
        folder: Where; None for shared memory or, where that is too small, the temporary folder.
    """

    def __init__(self, folder: Path | None) -> None:
        self._parent = folder
        self._folder: Path | None = None
        self._part: dict[str, Tensor] = {}
        self._bytes = 0
        self._lock = -1
        self.files: list[str] = []

    def place(self, n_bytes: int) -> None:
        """Choose a folder with room for so many bytes; called once, before the first weights.

        Raises:
            MachineError: If there is none.
        """
        if self._folder is not None:
            return
        candidates = [_SHARED_MEMORY, Path(tempfile.gettempdir())]
        candidates = [self._parent] if self._parent is not None else candidates
        for parent in candidates:
            if parent.is_dir() and shutil.disk_usage(parent).free > 1.05 * n_bytes:
                _sweep(parent)
                self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
                self._lock = os.open(self._folder / _LOCK, os.O_CREAT | os.O_RDWR)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                return
        raise MachineError(
            f"no room for a copy of the weights, {n_bytes / 2**30:.2f} GiB, in "
            f"{' or '.join(map(str, candidates))}",
            where="engine",
            remedy="set engine.with.folder to one with room, which the servers can read",
        )

    def clear(self) -> None:
        """Remove what there is."""
        for file in self.files:
            Path(file).unlink(missing_ok=True)
        self.files, self._part, self._bytes = [], {}, 0

    def add(self, name: str, tensor: Tensor) -> None:
        """Keep one tensor."""
        # a copy: what shares memory cannot be saved, and what is trained on will change
        self._part[name] = tensor.detach().to("cpu", copy=True).contiguous()
        self._bytes += tensor.numel() * tensor.element_size()
        if self._bytes >= _PART_BYTES:
            self._write()

    def finish(self) -> None:
        """Write what is left."""
        if self._part:
            self._write()

    def close(self) -> None:
        """Remove everything; safe to call twice."""
        self.files = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._lock)
            self._folder = None

    def _write(self) -> None:
        from safetensors.torch import save_file

        assert self._folder is not None, "place was not called"
        file = self._folder / f"part-{len(self.files):05d}.safetensors"
        save_file(self._part, file)
        self.files.append(str(file))
        self._part, self._bytes = {}, 0


def _sweep(parent: Path) -> None:
    """Remove the copies of trainers that were killed: nobody holds their lock any more."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or being made or removed right now
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
