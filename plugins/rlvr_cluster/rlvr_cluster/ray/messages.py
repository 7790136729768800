"""The messages between the trainer and its rollout actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlvr_core.api import EngineContext, Generation, GenerationRequest, Json

Answers = tuple[Generation, ...]


@dataclass(frozen=True, slots=True)
class ActorArgs:
    """What an actor is started with.

    Attributes:
        use: The engine, by registered name or place.
        options: Its options.
        context: For its ``start``; ``model`` has no weights.
        own_weights: Whether it loads its first weights by itself, and takes others by name.
        device: For its copy of the trainer's model.
        threads: Number of compute threads.
        environment: Variables to set.
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
        version: Their version.
        tensors: Reference to the tensors by name; in a list, so that Ray hands on the reference.
        adapter_config: Configuration of the LoRA adapter that they are; None for whole weights.
        probe: What to sample after they are loaded.
    """

    version: int
    tensors: Sequence[Any]
    adapter_config: Mapping[str, Json] | None
    probe: GenerationRequest


@dataclass(frozen=True, slots=True)
class Reply:
    """An actor's answer.

    Attributes:
        kind: Whether it did what was asked.
        value: What it gives, or the ``RlvrError``.
    """

    kind: Literal["done", "failed", "cancelled"]
    value: Any = None
