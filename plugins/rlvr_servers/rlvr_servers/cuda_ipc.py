"""Sends weights to an engine in its own process on the trainer's GPU, without host memory.

The trainer copies them into a buffer on the GPU, and the engine's process opens that buffer by a
handle (CUDA IPC).
"""

from __future__ import annotations

import base64
import math
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from rlvr_core.api import (
    Json,
    MachineError,
    NamedTensors,
    NoConfig,
    OutgoingWeights,
    TensorMeta,
    TransportLink,
    TransportTraits,
)

_WHERE = "engine.transport"
_OTHER = "leave engine.transport out: weights then go through files in shared memory"
_ALIGN = 64

Place = tuple[str, str, tuple[int, ...], int]
"""Name, dtype, shape and offset of one tensor."""


class CudaIpc:
    """Transport ``cuda-ipc``: two copies on one GPU, the trainer's and then the engine's."""

    traits = TransportTraits(lasting=True)

    def __init__(self, config: NoConfig) -> None:
        self._buffer: Tensor | None = None
        self._handle = ""

    def send(self, weights: OutgoingWeights, link: TransportLink) -> None:
        """Copy the weights into the buffer, and send where each lies.

        Raises:
            MachineError: If there is no GPU, or it has no room for the buffer.
        """
        if not torch.cuda.is_available():
            raise MachineError(
                "transport cuda-ipc needs the trained model on a GPU, and there is none",
                where=_WHERE,
                remedy=_OTHER,
            )
        if self._buffer is None:
            self._reserve(sum(map(room, weights.tensors)))
        assert self._buffer is not None
        places: list[Json] = [list(place) for place in write_tensors(self._buffer, weights)]
        torch.cuda.synchronize()  # another process cannot wait for this one's streams
        link.deliver({"handle": self._handle, "gpu": _gpu(), "places": places})

    def _reserve(self, size: int) -> None:
        try:
            self._buffer = torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            raise MachineError(
                f"no room on the GPU for the weights that go to the engine's process: "
                f"{size / 2**30:.3g} GiB",
                where=_WHERE,
                remedy=_OTHER,
            ) from error
        self._handle = _shared(self._buffer)

    def receive(self, message: Json, load: Callable[[NamedTensors], None], index: int) -> None:
        """Pass on the tensors as views of the buffer.

        Raises:
            MachineError: If this process works on another GPU, or may not open the buffer.
        """
        content: Any = message
        if not torch.cuda.is_available() or content["gpu"] != _gpu():
            raise MachineError(
                f"transport cuda-ipc needs the engine on the trainer's GPU ({content['gpu']}); "
                f"its process has {_gpu() if torch.cuda.is_available() else 'none'}",
                where=_WHERE,
                remedy=_OTHER,
            )
        if self._buffer is None or content["handle"] != self._handle:
            self._buffer, self._handle = _opened(content["handle"]), content["handle"]
        load(read_tensors(self._buffer, content["places"]))

    def close(self) -> None:
        """Release the buffer."""
        self._buffer, self._handle = None, ""


def _shared(buffer: Tensor) -> str:
    from torch.multiprocessing.reductions import reduce_tensor

    return base64.b64encode(pickle.dumps(reduce_tensor(buffer))).decode()  # type: ignore[no-untyped-call]


def _opened(handle: str) -> Tensor:
    """Return the trainer's buffer; handles only pass between our own two processes."""
    rebuild, arguments = pickle.loads(base64.b64decode(handle))
    arguments = list(arguments)
    arguments[_DEVICE] = torch.cuda.current_device()  # here it may have another number
    try:
        buffer: Tensor = rebuild(*arguments)
    except RuntimeError as error:
        raise MachineError(
            f"the engine's process cannot open the trainer's memory on the GPU: {error}",
            where=_WHERE,
            remedy=_OTHER,
        ) from error
    return buffer


_DEVICE = 6
"""Place of the GPU's number among the arguments of torch's ``rebuild_cuda_tensor``."""


def _gpu() -> str:
    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


def room(tensor: TensorMeta | Tensor) -> int:
    """Return the bytes to reserve for a tensor, rounded up."""
    return -(-math.prod(tensor.shape) * tensor.dtype.itemsize // _ALIGN) * _ALIGN


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
