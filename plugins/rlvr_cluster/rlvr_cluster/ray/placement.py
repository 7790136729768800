"""Reserves resources for actors on the cluster, in one placement group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlvr_cluster.ray.cluster import resources
from rlvr_core.api import MachineError


@dataclass(frozen=True, slots=True)
class Placement:
    """A placement group with one bundle for each actor."""

    group: Any

    def strategy(self, index: int) -> Any:
        """Return the scheduling strategy of the actor with this number, from 0."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return PlacementGroupSchedulingStrategy(self.group, index)

    def remove(self) -> None:
        """Return the resources to the cluster."""
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(self.group)


def reserve(each: Mapping[str, float], actors: int, seconds: float, where: str) -> Placement:
    """Reserve one place for each actor, spread over the nodes.

    Args:
        each: Resources of one actor.
        actors: Number of actors.
        seconds: Time within which the cluster must have room.
        where: The option that requests the actors.

    Raises:
        MachineError: If the cluster does not have room for all of them in time.
    """
    from ray.util.placement_group import placement_group

    placement = Placement(placement_group([dict(each)] * actors, strategy="SPREAD"))
    if not placement.group.wait(seconds):
        placement.remove()
        wanted = ", ".join(f"{count:g} {name}" for name, count in each.items())
        raise MachineError(
            f"the Ray cluster had no room for {actors} actors of {wanted} each within "
            f"{seconds:g} s; it has {resources()}",
            where=where,
            remedy=(
                "lower actors, cpus or gpus, or add nodes: ray start --address=HEAD:6379",
                f"raise {where}.deadline if nodes are on their way",
            ),
        )
    return placement
