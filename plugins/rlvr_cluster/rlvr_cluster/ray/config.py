"""Options of engine ``ray``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from rlvr_core.api import ComponentConfig
from rlvr_core.toolkit import ComponentRef

Count = Annotated[int, Field(gt=0)]


class RayConfig(ComponentConfig):
    """The actors and their engine."""

    engine: ComponentRef = ComponentRef(use="transformers")
    """The engine of each actor, with its options."""
    actors: Count = 1
    """Actors of each training process: one place for each is reserved, in one placement group,
    before the run starts."""
    cpus: Annotated[float, Field(ge=0)] = 1
    """Processors of each actor."""
    gpus: Annotated[float, Field(ge=0)] = 0
    """GPUs of each actor."""
    address: str | None = None
    """``host:port`` of the cluster's head; null for RAY_ADDRESS, or else for the cluster on this
    machine."""
    restarts: Annotated[int, Field(ge=0)] = 3
    """How often in a row an actor that has answered nothing is replaced."""
    deadline: Annotated[float, Field(gt=0)] = 600
    """Seconds for resources to become free, for actors to start, and for them to load weights."""
    max_in_flight: Count = 256
    """Largest number of completions requested from one actor at a time."""

    @model_validator(mode="after")
    def _has_resources(self) -> RayConfig:
        if not self.cpus and not self.gpus:
            raise ValueError("an actor needs cpus or gpus")
        return self

    @property
    def resources(self) -> dict[str, float]:
        """Resources of one actor, as Ray names them."""
        every = {"CPU": self.cpus, "GPU": self.gpus}
        return {name: count for name, count in every.items() if count}
