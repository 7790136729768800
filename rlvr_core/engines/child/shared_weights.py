"""Both ends of the weight transfer to an engine in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlvr_core.api import Adapter, Json, NamedTensors, TensorMeta


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
        return [TensorMeta(name, t.dtype, tuple(t.shape)) for name, t in self.make()]

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
        parameters = dict(self.module.named_parameters())
        for name, tensor in self.tensors():
            if name not in parameters:
                raise ValueError(f"the copy of the model has no parameter {name}")
            parameters[name].copy_(tensor)
