"""Creates the slots of rollout actors and the arguments that they start with."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rlvr_cluster.ray.actor import RolloutActor
from rlvr_cluster.ray.config import RayConfig
from rlvr_cluster.ray.messages import ActorArgs
from rlvr_cluster.ray.placement import Placement
from rlvr_cluster.ray.slots import Slot
from rlvr_cluster.ray.weights import without_weights
from rlvr_core.api import EngineContext, MachineError
from rlvr_core.record.text import is_secret
from rlvr_core.toolkit import __version__

_EXTRA_CALLS = 64
"""Concurrent calls of an actor besides those for completions."""
_PASSED_ON = ("RLVR_PLUGINS", "VLLM_", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Prefixes of the variables that actors get; names of secrets are left out."""


def slots(config: RayConfig, placement: Placement) -> list[Slot]:
    """Return a slot for each actor."""
    return [Slot(index, _creator(config, placement, index)) for index in range(config.actors)]


def _creator(config: RayConfig, placement: Placement, index: int) -> Callable[[], Any]:
    import ray

    actor = ray.remote(RolloutActor).options(
        num_cpus=config.cpus,
        num_gpus=config.gpus,
        max_restarts=0,
        max_concurrency=config.max_in_flight + _EXTRA_CALLS,
        scheduling_strategy=placement.strategy(index),
    )
    return lambda: actor.remote()


def actor_args(
    config: RayConfig,
    use: str,
    context: EngineContext,
    *,
    own_weights: bool,
) -> ActorArgs:
    """Return the arguments of each actor."""
    model: Any = context.model
    bare: Any = SimpleNamespace(
        config=model.config, generation_config=getattr(model, "generation_config", None)
    )
    path = Path(context.model_path)
    return ActorArgs(
        use=use,
        options=config.engine.with_,
        context=replace(
            context,
            model=bare if own_weights else without_weights(model),
            model_path=str(path.absolute()) if path.exists() else context.model_path,
            transport=None,
        ),
        own_weights=own_weights,
        device="cuda:0" if config.gpus else "cpu",
        threads=max(1, math.floor(config.cpus)),
        environment=passed_on(),
        version=__version__,
    )


def passed_on() -> dict[str, str]:
    """Return the variables of this process that actors get."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_PASSED_ON) and not is_secret(name)
    }


def put(args: ActorArgs) -> Any:
    """Put an actor's arguments into Ray's object store, and return the reference.

    Raises:
        MachineError: If they cannot be sent to another process.
    """
    import ray

    try:
        return ray.put(args)
    except Exception as error:
        raise MachineError(
            f"the arguments of engine {args.use} cannot be sent to a rollout actor: {error}",
            where="engine.with.engine",
            remedy="choose another engine",
        ) from error
