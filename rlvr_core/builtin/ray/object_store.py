"""How weights reach rollout actors where ``engine.transport`` names nothing: Ray's object store."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from rlvr_core.api import Json, NamedTensors, OutgoingWeights, TransportLink, TransportTraits

_PART_BYTES = 1 << 30


class ObjectStore:
    """Puts weights into Ray's object store, in parts; messages hold references to them.

    Ray brings each part once to a machine, however many actors it has, and frees it when the last
    message that refers to it is gone.
    """

    traits = TransportTraits(lasting=True)
    name = "Ray's object store"

    def make(self) -> ObjectStore:
        """Return either end; there are no options."""
        return ObjectStore()

    def send(self, weights: OutgoingWeights, link: TransportLink) -> None:
        """See ``WeightTransport.send``."""
        part: dict[str, tuple[torch.dtype, tuple[int, ...], Any]] = {}
        size = 0
        for name, tensor in weights:
            # a copy, as bytes: the tensor is trained on, and NumPy has no bfloat16
            data = tensor.detach().to("cpu", copy=True).contiguous().reshape(-1)
            part[name] = (tensor.dtype, tuple(tensor.shape), data.view(torch.uint8).numpy())
            size += data.nbytes
            if size >= _PART_BYTES:
                _put(part, link)
                part, size = {}, 0
        if part:
            _put(part, link)

    def receive(self, message: Json, load: Callable[[NamedTensors], None], index: int) -> None:
        """See ``WeightTransport.receive``."""
        import ray

        content: Any = message
        load(_tensors(ray.get(content["part"])))

    def close(self) -> None:
        """See ``WeightTransport.close``."""


def _put(part: Any, link: TransportLink) -> None:
    import ray

    message: Any = {"part": ray.put(part)}
    link.deliver(message)


def _tensors(part: Any) -> Iterator[tuple[str, Tensor]]:
    for name, (dtype, shape, data) in part.items():
        with warnings.catch_warnings():  # the store's memory cannot be written to; nobody does
            warnings.filterwarnings("ignore", message=".*not writable")
            yield name, torch.from_numpy(data).view(dtype).reshape(shape)
