"""Weights on their way to rollout actors: both ends, and the proof that they arrived."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlvr_core.api import (
    Adapter,
    ConfigError,
    InheritsFiles,
    Json,
    NamedTensors,
    TensorMeta,
    TransportChoice,
    TransportTraits,
    traits_of,
)
from rlvr_core.api.services import ChosenTransport, Host, weight_checksums


class Outgoing:
    """The weights of one sync, with a fingerprint of what was sent; see ``OutgoingWeights``."""

    def __init__(self, make: Callable[[], NamedTensors]) -> None:
        self._make = make
        self.sent: dict[str, str] = {}

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        """Names, dtypes and shapes; gathers a sharded policy, so every process must call it."""
        return [TensorMeta(name, one.dtype, tuple(one.shape)) for name, one in self._make()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Iterate over names and tensors; afterwards ``sent`` is complete."""
        for name, tensor in self._make():
            (checksum,) = weight_checksums([(name, tensor)]).values()
            self.sent[name] = f"{tensor.dtype} {tuple(tensor.shape)} {checksum}"
            yield name, tensor


class ActorLink:
    """The actors, which get a sync's messages together with ``load_weights``."""

    remote_hosts = ()

    def __init__(self, receivers: int) -> None:
        self.receivers = receivers
        self.members = tuple(f"rollout actor {index}" for index in range(receivers))
        self.messages: list[Json] = []

    def deliver(self, message: Json) -> None:
        """Keep a message, also for actors that join later."""
        self.messages.append(message)


def chosen_transport(configured: TransportChoice | None, host: Host) -> TransportChoice:
    """Return the configured transport, by default files.

    Raises:
        ConfigError: If its messages cannot be received by actors that join later, or only by a
            process that inherits open files.
    """
    if configured is None:
        entry = host.entry("transport", "core/files")
        return ChosenTransport(entry.name, entry.target, entry.plugin, {})
    made = configured.make()
    if isinstance(made, InheritsFiles) or not traits_of(made, TransportTraits).lasting:
        raise ConfigError(
            f"transport {configured.name} needs a receiver that is there when it sends, and "
            "rollout actors come and go",
            where="engine.transport",
            remedy="leave it out, or take one whose traits say lasting, as core/files does",
        )
    return configured


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
            ValueError: If names differ: a parameter that received nothing would be a random one.
        """
        own = dict(self.module.named_parameters())
        if own.keys() != self.received.keys():
            odd = sorted(own.keys() ^ self.received.keys())
            raise ValueError(f"weights and model differ in {len(odd)} names: {odd[0]}")
        with torch.no_grad():
            for name, tensor in self.received.items():
                own[name].copy_(tensor)


def without_weights(model: Any) -> Any:
    """Return a copy of a model whose parameters have shapes and no content.

    What a model is travels through Ray's object store, its weights do not.
    """
    memo: dict[int, Any] = {
        id(one): torch.nn.Parameter(torch.empty_like(one, device="meta"), requires_grad=False)
        for one in model.parameters()
    }
    return copy.deepcopy(model, memo)


def materialise(module: Any, device: str) -> None:
    """Give the parameters of ``without_weights`` memory, whatever it holds; ties stay."""
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


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """A fingerprint of tensors: names, dtypes, and every bit in its place."""
    return join_digests(
        {
            name: f"{tensor.dtype} {tuple(tensor.shape)} {checksum}"
            for (name, tensor), checksum in zip(
                tensors.items(), weight_checksums(tensors.items()).values(), strict=True
            )
        }
    )


def join_digests(parts: Mapping[str, str]) -> str:
    """One fingerprint of the fingerprints of tensors by name, in whatever order they came."""
    text = "\n".join(f"{name} {parts[name]}" for name in sorted(parts))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
