"""What a Ray job with ``--nodes`` reserves: bundles of machines, and of the config's actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from rlvr_core.api import LaunchRequest
from rlvr_core.api.services import load_host, what_to_run
from rlvr_core.builtin.jobs.elsewhere import kept_of

MODULE = "rlvr_core.builtin.ray.trainers"
"""What such a job begins with."""


@runtime_checkable
class PlacedByRay(Protocol):
    """Options of a component that has actors on a Ray cluster."""

    def bundles(self, workers: int) -> tuple[str, list[dict[str, float]]]:
        """Return what is reserved for each training process: its kind, and resources of each actor.

        Args:
            workers: ``verify.workers``.
        """


def actors_of(request: LaunchRequest) -> dict[str, list[dict[str, float]]]:
    """Return the bundles of the actors of each training process, by kind.

    Raises:
        ConfigError: If the config is wrong.
    """
    sets = tuple(kept_of(request)["set"])
    resolved, _ = what_to_run(Path(request.arguments[1]), sets, None, load_host())
    workers = resolved.config.verify.workers
    options = [component.config for component in resolved.components.values()]
    found = dict(one.bundles(workers) for one in options if isinstance(one, PlacedByRay))
    return {kind: bundles for kind, bundles in found.items() if bundles}


def words_for(
    nodes: int,
    machine: Mapping[str, float],
    processes: int,
    actors: Mapping[str, Sequence[Mapping[str, float]]],
) -> str:
    """Return in words what is reserved.

    Args:
        nodes: Number of machines.
        machine: Resources of each.
        processes: Training processes of each.
        actors: What ``actors_of`` returns.
    """
    found = [f"{nodes} machines of {_text(machine)} each"]
    for kind, bundles in actors.items():
        count = len(bundles) * nodes * processes
        found.append(f"{count} actors of {_text(bundles[0])} each ({kind})")
    return ", ".join(found)


def _text(resources: Mapping[str, float]) -> str:
    return ", ".join(
        f"{count / 2**30:g} GiB of memory" if name == "memory" else f"{count:g} {name}"
        for name, count in resources.items()
    )
