"""Sends weights to an engine in its own process, by default through shared memory.

The memory is an anonymous file, freed when both processes have ended, however they end. Its bytes
are reserved before the first is written: a write through mmap to a file system that is full would
end the process by SIGBUS. Where shared memory is too small (64 MiB in a container of docker's
defaults), the file lies in the temporary folder.
"""

from __future__ import annotations

import mmap
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlvr_core.api import (
    Adapter,
    Json,
    MachineError,
    NamedTensors,
    NoConfig,
    OutgoingWeights,
    TensorMeta,
    TransportLink,
    TransportTraits,
)

_ALIGN = 64
_SHARED_MEMORY = Path("/dev/shm")

Place = tuple[str, str, tuple[int, ...], int]
"""Name, dtype, shape and offset of one tensor."""


class SharedTensors:
    """A sequence of tensors in shared memory.

    Args:
        fd: File descriptor, for reading and writing by position.
        size: Size in bytes.
    """

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self._bytes = torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8)

    @classmethod
    def create(cls, tensors: Iterable[Tensor]) -> SharedTensors:
        """Reserve room for tensors like these, in float32 too.

        Raises:
            MachineError: If neither shared memory nor the temporary folder has room for them.
        """
        size = max(sum(room(tensor, least=4) for tensor in tensors), mmap.PAGESIZE)
        return cls(_reserve(size), size)

    def write(self, tensors: Iterable[tuple[str, Tensor]]) -> list[Place]:
        """Copy tensors in, from any device; return their places."""
        return write_tensors(self._bytes, tensors)

    def read(self, places: Iterable[Place]) -> Iterator[tuple[str, Tensor]]:
        """Yield each tensor with its name, as a view of the shared memory."""
        return read_tensors(self._bytes, places)

    def close(self) -> None:
        """Close the file; the memory stays while a tensor refers to it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class SharedMemory:
    """Transport ``shared-memory``: the trainer makes one copy, the engine's process none."""

    traits = TransportTraits(lasting=True)

    def __init__(self, config: NoConfig) -> None:
        self._shared: SharedTensors | None = None

    def open_files(self, like: Iterable[Tensor]) -> Sequence[int]:
        """Reserve the memory, and return its file descriptor; see ``InheritsFiles``."""
        self._shared = SharedTensors.create(like)
        return [self._shared.fd]

    def send(self, weights: OutgoingWeights, link: TransportLink) -> None:
        """Copy the weights in, and send their places."""
        assert self._shared is not None, "open_files comes first"
        places: list[Json] = [list(place) for place in self._shared.write(weights)]
        link.deliver({"fd": self._shared.fd, "size": self._shared.size, "places": places})

    def receive(self, message: Json, load: Callable[[NamedTensors], None], index: int) -> None:
        """Pass on the tensors as views of the shared memory."""
        content: Any = message
        if self._shared is None:
            self._shared = SharedTensors(content["fd"], content["size"])
        load(self._shared.read(tuple(place) for place in content["places"]))

    def close(self) -> None:
        """Release the memory."""
        if self._shared is not None:
            self._shared.close()


@dataclass(slots=True)
class Outgoing:
    """The weights of one sync; see ``OutgoingWeights``.

    Attributes:
        make: Returns an iterator over the weights.
    """

    make: Callable[[], NamedTensors]

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        """Names, dtypes and shapes; gathers a sharded policy, so every process must call it."""
        return [TensorMeta(name, one.dtype, tuple(one.shape)) for name, one in self.make()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Iterate over names and tensors."""
        return iter(self.make())


@dataclass(slots=True)
class ReceivedSource:
    """The received weights, as a source for an engine in its own process.

    Attributes:
        module: The process's copy of the trainer's model; None for an engine with its own weights.
        received: The received tensors, by name.
        adapter_config: Configuration of the received LoRA adapter; None for full weights.
    """

    module: Any
    received: Mapping[str, Tensor]
    adapter_config: dict[str, Json] | None = None

    @property
    def sharded(self) -> bool:
        """Always False: the tensors are complete."""
        return False

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors by name."""
        return iter(self.received.items())

    def adapter(self) -> Adapter:
        """Return the LoRA adapter, for an engine that loads only adapters."""
        assert self.adapter_config is not None, "these are whole weights"
        return Adapter(dict(self.tensors()), self.adapter_config)

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the received tensors into the copy of the trainer's model.

        Raises:
            ValueError: If it has no parameter of a received name.
        """
        own = dict(self.module.named_parameters())
        for name, tensor in self.tensors():
            if name not in own:
                raise ValueError(f"the copy of the model has no parameter {name}")
            own[name].copy_(tensor)


def folder_on_disk(fd: int) -> str | None:
    """Return the folder an open file lies in if that is not shared memory."""
    if _SHARED_MEMORY.is_dir() and os.fstat(fd).st_dev == _SHARED_MEMORY.stat().st_dev:
        return None
    return tempfile.gettempdir()


def _reserve(size: int) -> int:
    """Return an open anonymous file with ``size`` bytes reserved on its file system."""
    memory = [_SHARED_MEMORY] if _SHARED_MEMORY.is_dir() else []
    refusals = []
    for folder in (*memory, Path(tempfile.gettempdir())):
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                _set_aside(file.fileno(), size)
                return os.dup(file.fileno())
        except OSError as error:
            free = shutil.disk_usage(folder).free
            refusals.append(f"{folder} ({free / 2**30:.3g} GiB free): {error.strerror}")
    raise MachineError(
        f"no room for the weights of an engine in a process of its own, {size / 2**30:.3g} GiB: "
        + "; ".join(refusals),
        where="engine",
        remedy=(
            "enlarge shared memory (docker run --shm-size=..., or --ipc=host)",
            "or set TMPDIR to a folder with room",
        ),
    )


def _set_aside(file: int, size: int) -> None:
    """Grow a file to ``size`` bytes, reserved on its file system."""
    if sys.platform == "linux":
        os.posix_fallocate(file, 0, size)
    else:  # macOS has no such call: written bytes are allocated
        block = bytes(1 << 20)
        for start in range(0, size, len(block)):
            os.pwrite(file, block[: size - start], start)


def room(tensor: Tensor, least: int = 1) -> int:
    """Return the bytes to reserve for a tensor, at least ``least`` per element, rounded up."""
    return -(-tensor.numel() * max(tensor.element_size(), least) // _ALIGN) * _ALIGN


@torch.no_grad()
def write_tensors(buffer_N: Tensor, tensors: Iterable[tuple[str, Tensor]]) -> list[Place]:
    """Copy tensors into a buffer of bytes, one after another, and return their places.

    Raises:
        ValueError: If the buffer has no room for them.
    """
    places: list[Place] = []
    offset = 0
    for name, tensor in tensors:
        place = (name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), offset)
        if offset + room(tensor) > len(buffer_N):
            raise ValueError(f"no room for {name}: the weights have grown")
        _view(buffer_N, place).copy_(tensor)
        places.append(place)
        offset += room(tensor)
    return places


def read_tensors(buffer_N: Tensor, places: Iterable[Place]) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor with its name, as a view of the buffer."""
    for place in places:
        yield place[0], _view(buffer_N, place)


def _view(buffer_N: Tensor, place: Place) -> Tensor:
    _, dtype, shape, offset = place
    kind: torch.dtype = getattr(torch, dtype)
    size = torch.Size(shape).numel() * kind.itemsize
    return buffer_N[offset : offset + size].view(kind).view(shape)
