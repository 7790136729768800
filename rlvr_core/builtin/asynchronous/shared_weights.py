"""Weights for an engine in a process of its own, by default through memory that both share.

The memory is a file without a name: it goes when both have gone, however they end.
"""

from __future__ import annotations

import mmap
import os
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
    NamedTensors,
    NoConfig,
    OutgoingWeights,
    TensorMeta,
    TransportLink,
    TransportTraits,
)

_ALIGN = 64

Place = tuple[str, str, tuple[int, ...], int]
"""Name, dtype, shape and offset of one tensor."""


class SharedTensors:
    """A row of tensors in shared memory.

    Args:
        fd: The file; it may be written and read by position.
        size: Its bytes.
    """

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self._memory = mmap.mmap(fd, size)

    @classmethod
    def create(cls, tensors: Iterable[Tensor]) -> SharedTensors:
        """Room for tensors like these, in float32 too; none of it is taken before it is written."""
        size = sum(_room(tensor, least=4) for tensor in tensors)
        memory = Path("/dev/shm")
        with tempfile.TemporaryFile(dir=memory if memory.is_dir() else None) as file:
            fd = os.dup(file.fileno())
        os.ftruncate(fd, max(size, mmap.PAGESIZE))
        return cls(fd, max(size, mmap.PAGESIZE))

    @torch.no_grad()
    def write(self, tensors: Iterable[tuple[str, Tensor]]) -> list[Place]:
        """Copy tensors in, from whatever device; says where each is."""
        places: list[Place] = []
        offset = 0
        for name, tensor in tensors:
            place = (name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), offset)
            if offset + _room(tensor) > self.size:
                raise ValueError(f"no room for {name}: the weights have grown")
            self._view(place).copy_(tensor)
            places.append(place)
            offset += _room(tensor)
        return places

    def read(self, places: Iterable[Place]) -> Iterator[tuple[str, Tensor]]:
        """The tensors by name, in the shared memory itself."""
        for place in places:
            yield place[0], self._view(place)

    def close(self) -> None:
        """Let go of the file; the memory stays while a tensor refers to it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _view(self, place: Place) -> Tensor:
        _, dtype, shape, offset = place
        kind = getattr(torch, dtype)
        count = torch.Size(shape).numel()
        if count == 0:
            return torch.empty(shape, dtype=kind)
        flat = torch.frombuffer(self._memory, dtype=kind, count=count, offset=offset)
        return flat.view(shape)


class SharedMemory:
    """Transport ``shared-memory``: one copy by the trainer, none by the engine's process."""

    traits = TransportTraits(lasting=True)

    def __init__(self, config: NoConfig) -> None:
        self._shared: SharedTensors | None = None

    def open_files(self, like: Iterable[Tensor]) -> Sequence[int]:
        """Reserve the memory; see ``InheritsFiles``."""
        self._shared = SharedTensors.create(like)
        return [self._shared.fd]

    def send(self, weights: OutgoingWeights, link: TransportLink) -> None:
        """Copy the weights in, and say where each is."""
        assert self._shared is not None, "open_files comes first"
        places: list[Json] = [list(place) for place in self._shared.write(weights)]
        link.deliver({"fd": self._shared.fd, "size": self._shared.size, "places": places})

    def receive(self, message: Json, load: Callable[[NamedTensors], None], index: int) -> None:
        """Hand on the tensors in the shared memory itself."""
        content: Any = message
        if self._shared is None:
            self._shared = SharedTensors(content["fd"], content["size"])
        load(self._shared.read(tuple(place) for place in content["places"]))

    def close(self) -> None:
        """Let go of the memory."""
        if self._shared is not None:
            self._shared.close()


@dataclass(slots=True)
class Outgoing:
    """What one sync sends; see ``OutgoingWeights``.

    Attributes:
        make: Begins to iterate over the weights.
    """

    make: Callable[[], NamedTensors]

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        """A sharded policy is gathered for it: every process has to ask."""
        return [TensorMeta(name, one.dtype, tuple(one.shape)) for name, one in self.make()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Names and tensors."""
        return iter(self.make())


@dataclass(slots=True)
class ReceivedSource:
    """Where an engine in a process of its own takes new weights from.

    Attributes:
        module: Its copy of the trainer's model; None for an engine with weights of its own.
        received: What arrived, by name.
        adapter_config: Of the LoRA adapter that arrived; None for whole weights.
    """

    module: Any
    received: Mapping[str, Tensor]
    adapter_config: dict[str, Json] | None = None

    @property
    def sharded(self) -> bool:
        """Never: the tensors are whole."""
        return False

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors by name."""
        return iter(self.received.items())

    def adapter(self) -> Adapter:
        """The LoRA adapter, for an engine that takes nothing else."""
        assert self.adapter_config is not None, "these are whole weights"
        return Adapter(dict(self.tensors()), self.adapter_config)

    @torch.no_grad()
    def refresh(self) -> None:
        """Bring the copy of the trainer's model up to date.

        Raises:
            ValueError: If it has no parameter of a name that came.
        """
        own = dict(self.module.named_parameters())
        for name, tensor in self.tensors():
            if name not in own:
                raise ValueError(f"the copy of the model has no parameter {name}")
            own[name].copy_(tensor)


def _room(tensor: Tensor, least: int = 1) -> int:
    return -(-tensor.numel() * max(tensor.element_size(), least) // _ALIGN) * _ALIGN
