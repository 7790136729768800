"""Prepares a model in an actor, and loads received weights into it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlvr_core.api import Adapter, Json


@dataclass(slots=True)
class ReceivedSource:
    """Received weights, as a source for an engine; see ``WeightSource``.

    Attributes:
        module: The actor's copy of the trainer's model; None for an engine with its own weights.
        received: The received tensors, by name.
        adapter_config: Configuration of the received LoRA adapter; None for whole weights.
    """

    module: Any
    received: Mapping[str, Tensor]
    adapter_config: Mapping[str, Json] | None = None
    sharded: bool = field(default=False, init=False)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors by name."""
        return iter(self.received.items())

    def adapter(self) -> Adapter:
        """Return the LoRA adapter."""
        assert self.adapter_config is not None, "these are whole weights"
        return Adapter(dict(self.received), dict(self.adapter_config))

    def refresh(self) -> None:
        """Copy the received tensors into the copy of the trainer's model.

        Raises:
            ValueError: If names differ, because a parameter that is not received stays random.
        """
        parameters = dict(self.module.named_parameters())
        if parameters.keys() != self.received.keys():
            odd = sorted(parameters.keys() ^ self.received.keys())
            raise ValueError(f"weights and model differ in {len(odd)} names: {odd[0]}")
        with torch.no_grad():
            for name, tensor in self.received.items():
                parameters[name].copy_(tensor)


def without_weights(model: Any) -> Any:
    """Return a copy of a model whose parameters have shapes but no content.

    The copy is sent to actors through Ray's object store without the weights.
    """
    memo: dict[int, Any] = {
        id(parameter): torch.nn.Parameter(
            torch.empty_like(parameter, device="meta"), requires_grad=False
        )
        for parameter in model.parameters()
    }
    return copy.deepcopy(model, memo)


def materialise(module: Any, device: str) -> None:
    """Give the parameters of ``without_weights`` uninitialized memory; keep ties."""
    made: dict[int, Any] = {}
    for owner in module.modules():
        for name, parameter in owner._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in made:
                empty = torch.empty_like(parameter, device=device)
                made[id(parameter)] = torch.nn.Parameter(empty, requires_grad=False)
            owner._parameters[name] = made[id(parameter)]
        for name, buffer in owner._buffers.items():
            if buffer is not None:
                owner._buffers[name] = buffer.to(device)
