"""The messages between the trainer and its rollout actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlvr_core.api import EngineContext, Generation, GenerationRequest, Json

Answers = tuple[Generation, ...]


@dataclass(frozen=True, slots=True)
class ActorArgs:
    """The arguments that an actor starts with.

    Attributes:
        use: The engine, by registered name or ``file:name``.
        options: The engine's options.
        context: Argument of the engine's ``start``; its ``model`` has no weights.
        own_weights: Whether the engine loads its first weights by itself, and later ones by name.
        device: Device of the copy of the trainer's model.
        threads: Number of compute threads.
        environment: Environment variables to set.
        version: The trainer's version of rlvr-core.
    """

    use: str
    options: Mapping[str, Any]
    context: EngineContext
    own_weights: bool
    device: str
    threads: int
    environment: Mapping[str, str]
    version: str


@dataclass(frozen=True, slots=True)
class SentWeights:
    """Weights in Ray's object store, for an actor to load.

    Attributes:
        version: Version of the weights.
        tensors: Reference to the tensors by name, in a list so that Ray passes on the reference.
        adapter_config: Configuration if the weights are a LoRA adapter; None for whole weights.
        probe: Request to sample after loading.
    """

    version: int
    tensors: Sequence[Any]
    adapter_config: Mapping[str, Json] | None
    probe: GenerationRequest


@dataclass(frozen=True, slots=True)
class Reply:
    """An actor's answer.

    Attributes:
        kind: Whether the call succeeded.
        value: The result, or the ``RlvrError``.
    """

    kind: Literal["done", "failed", "cancelled"]
    value: Any = None
