"""Transport ``files``: the weights that were sent last, in files that the receivers map."""

from __future__ import annotations

import contextlib
import fcntl
import logging
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
    one_line,
)
from rlvr_core.engines.transport import ChosenTransport

logger = logging.getLogger(__name__)

PREFIX = "rlvr-weights-"
"""Prefix of the folders; one whose lock nobody holds belongs to a killed process."""
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
        """Folder of the files."""

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
        for _ in self.keep(weights, weights):
            pass
        link.deliver(self.message())

    def message(self) -> dict[str, Json]:
        """The message that names the files."""
        return {"files": list(self.files)}

    def keep(self, weights: OutgoingWeights, tensors: NamedTensors) -> NamedTensors:
        """Hand the tensors of weights on while they are written.

        Raises:
            MachineError: If there is no room for them.
        """
        if self._folder is None:
            self._place(n_bytes(weights.tensors))
        for file in self.files:
            Path(file).unlink(missing_ok=True)
        self.files, self._part, self._bytes = [], {}, 0
        self._sends += 1  # in the names of the files, so that two sends never mix
        for name, tensor in tensors:
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

    def close(self) -> None:
        """Remove the files, and their folder."""
        self.files = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._lock)
            self._folder = None

    def _place(self, needed: int) -> None:
        """Choose a folder with room for so many bytes, before the first weights."""
        parents = [_SHARED_MEMORY, Path(tempfile.gettempdir())]
        if self._parent is not None:
            parents = [self._parent]
        for parent in parents:
            if parent.is_dir() and shutil.disk_usage(parent).free > _SPARE * needed:
                if parent != parents[0]:
                    logger.warning(
                        "weights go to the engine through files in %s, slower than shared memory: "
                        "/dev/shm is too small or absent (docker: --shm-size)",
                        parent,
                    )
                sweep(parent)
                self._folder, self._lock = locked_folder(parent)
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
            raise no_room(self._bytes, [self._folder], f": {one_line(error)}") from error
        self.files.append(str(file))
        self._part, self._bytes = {}, 0


FILES = ChosenTransport("core/files", f"{Files.__module__}:{Files.__name__}", "core", {})
"""The transport that is used where the configuration names none."""


def no_room(needed: int, folders: Sequence[Path], why: str = "") -> MachineError:
    """The error for weights that find no room on this machine."""
    return MachineError(
        f"no room for a copy of the weights, {needed / 2**30:.2f} GiB, in "
        f"{' or '.join(map(str, folders))}{why}",
        where="engine",
        remedy="engine.transport: {use: ..., with: {folder: ...}} names a folder with room; with "
        "files, which the engine's processes can read",
    )


def locked_folder(parent: Path) -> tuple[Path, int]:
    """Make a folder whose lock this process holds until it closes it, or ends."""
    made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent))
    lock = os.open(made / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # under its own name only now: a sweep by another process never meets it without its lock
    return made.rename(parent / made.name.removeprefix(".")), lock


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
