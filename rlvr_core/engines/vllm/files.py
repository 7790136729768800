"""Transport ``files``: the weights that were sent last, in files that the receivers map."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from rlvr_core.api import (
    ComponentConfig,
    Json,
    MachineError,
    NamedTensors,
    OutgoingWeights,
    TensorMeta,
    TransportLink,
    TransportTraits,
)
from rlvr_core.engines.transport import ChosenTransport
from rlvr_core.engines.vllm.process import first_line

PREFIX = "rlvr-weights-"
"""Of the folders; those whose lock nobody holds are of killed processes."""
_PART_BYTES = 1 << 30
_SHARED_MEMORY = Path("/dev/shm")
_LOCK = "lock"
_SPARE = 1.05
"""How much more than the weights a folder must have room for."""


class Files:
    """Transport ``files``: the last weights sent, in safetensors files of one gigabyte.

    In shared memory where there is room, so that nothing is written to a disk. What is old is
    removed before the new comes: one copy exists at a time.
    """

    traits = TransportTraits(lasting=True)

    class Config(ComponentConfig):
        """Where the files are."""

        folder: str | None = None
        """A folder that trainer and engine see at the same place. null: shared memory, or where
        that is too small the temporary folder."""

    def __init__(self, config: Config) -> None:
        self._parent = None if config.folder is None else Path(config.folder)
        self._folder: Path | None = None
        self._part: dict[str, Tensor] = {}
        self._bytes = 0
        self._lock = -1
        self._sends = 0
        self.files: list[str] = []

    def send(self, weights: OutgoingWeights, link: TransportLink) -> None:
        """Write the files, and say where they are.

        Raises:
            MachineError: If there is no room for them.
        """
        for _ in self.keep(weights):
            pass
        link.deliver(self.message())

    def message(self) -> dict[str, Json]:
        """The message that names the files."""
        return {"files": list(self.files)}

    def keep(self, weights: OutgoingWeights) -> Iterator[tuple[str, Tensor]]:
        """Hand weights on while they are written.

        Raises:
            MachineError: If there is no room for them.
        """
        if self._folder is None:
            self._place(n_bytes(weights.tensors))
        self.remove()
        self._sends += 1
        for name, tensor in weights:
            # a copy: what shares memory cannot be saved, and what is trained on will change
            self._part[name] = tensor.detach().to("cpu", copy=True).contiguous()
            self._bytes += tensor.numel() * tensor.element_size()
            if self._bytes >= _PART_BYTES:
                self._write()
            yield name, tensor
        if self._part:
            self._write()

    def receive(self, message: Json, load: Callable[[NamedTensors], None], index: int) -> None:
        """Read the files."""
        content: Any = message
        load(read_files(content["files"]))

    def remove(self) -> None:
        """Remove the files; the next ones have other names, so that two sends never mix."""
        for file in self.files:
            Path(file).unlink(missing_ok=True)
        self.files, self._part, self._bytes = [], {}, 0

    def close(self) -> None:
        """Remove the files, and their folder."""
        self.files = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._lock)
            self._folder = None

    def _place(self, needed: int) -> None:
        """Choose a folder with room for so many bytes, before the first weights."""
        parents = candidates(self._parent)
        for parent in parents:
            if has_room(parent, needed):
                sweep(parent)
                while (lock := hold(folder := _new(parent), fcntl.LOCK_EX)) is None:
                    pass
                self._folder, self._lock = folder, lock
                return
        raise no_room(needed, parents)

    def _write(self) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        assert self._folder is not None
        file = self._folder / f"part-{self._sends:06d}-{len(self.files):05d}.safetensors"
        try:
            save_file(self._part, file)
        except (OSError, SafetensorError) as error:
            raise no_room(self._bytes, [self._folder], f": {first_line(error)}") from error
        self.files.append(str(file))
        self._part, self._bytes = {}, 0


FILES = ChosenTransport("core/files", f"{Files.__module__}:{Files.__name__}", "core", {})
"""The transport that is used where the configuration names none."""


def candidates(parent: Path | None) -> list[Path]:
    """The folders that weights may lie in, the best first; the configured one alone if it is."""
    return [parent] if parent is not None else [_SHARED_MEMORY, Path(tempfile.gettempdir())]


def has_room(parent: Path, needed: int) -> bool:
    """Whether a folder is there and has room for so many bytes."""
    return parent.is_dir() and shutil.disk_usage(parent).free > _SPARE * needed


def no_room(needed: int, folders: Sequence[Path], why: str = "") -> MachineError:
    """The error for weights that find no room on this machine."""
    return MachineError(
        f"no room for a copy of the weights, {needed / 2**30:.2f} GiB, in "
        f"{' or '.join(map(str, folders))}{why}",
        where="engine",
        remedy="engine.transport: {use: ..., with: {folder: ...}} names a folder with room; with "
        "files, which the engine's processes can read",
    )


def _new(parent: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))


def hold(folder: Path, operation: int) -> int | None:
    """Take the lock of a folder that is used: ``LOCK_EX`` alone, ``LOCK_SH`` with others.

    Returns:
        The lock, to be closed; None if the folder was removed meanwhile.
    """
    try:
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except FileNotFoundError:
        return None
    fcntl.flock(lock, operation)  # for the moment that a sweep may have it
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat((folder / _LOCK).stat(), os.fstat(lock)):
            return lock
    os.close(lock)
    return None


def folder_on_disk(messages: Sequence[Json]) -> str | None:
    """Return the folder of sent files that lie outside shared memory; None of others."""
    content: Any = messages[-1] if messages else None
    files = content.get("files") if isinstance(content, dict) else None
    folder = Path(files[0]).parent if files else None
    return str(folder) if folder is not None and folder.parent != _SHARED_MEMORY else None


def n_bytes(tensors: Sequence[TensorMeta]) -> int:
    """Total size of the tensors in bytes."""
    return sum(math.prod(meta.shape) * meta.dtype.itemsize for meta in tensors)


def read_files(files: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
    """Map safetensors files, and yield their tensors by name."""
    from safetensors import safe_open

    for file in files:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                yield name, tensors.get_tensor(name)


def sweep(parent: Path) -> None:
    """Remove the files of processes that were killed: nobody holds their lock any more."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or being made or removed right now
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
