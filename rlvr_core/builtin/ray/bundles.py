"""Bundles of placement groups: a component's own, or those that a Ray job reserved for it.

``rlvr launch --backend ray --nodes N`` makes one placement group for the machines that train and
the actors of all their processes (see ``trainers``). A training process finds its part of it in an
environment variable; without one, each component reserves a group of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlvr_core.api import ConfigError
from rlvr_core.builtin.ray.cluster import reserve

GROUP = "RLVR_RAY_GROUP"
"""Environment variable of training processes: what ``group_variable`` returns."""
RANK = "RANK"

Kind = Literal["engine", "verifiers", "environment"]
_taken: set[Kind] = set()
"""What this process has taken: a bundle has room for one actor."""


@dataclass(frozen=True, slots=True)
class Bundles:
    """Bundles in a row, one for each actor.

    Attributes:
        group: The placement group.
        first: Index of the first.
        own: Whether the group was made for them alone.
    """

    group: Any
    first: int = 0
    own: bool = True

    def strategy(self, index: int) -> Any:
        """Return the scheduling strategy of the actor with this number, from 0."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return PlacementGroupSchedulingStrategy(self.group, self.first + index)

    def give_back(self) -> None:
        """Remove the group, unless the job does."""
        if self.own:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(self.group)


def bundles_for(
    kind: Kind, wanted: Sequence[Mapping[str, float]], seconds: float, where: str
) -> Bundles:
    """Return bundles of the job's group, or else reserve a group.

    Args:
        kind: What they are for.
        wanted: Resources of each.
        seconds: How long the cluster has to have room for a group.
        where: Option that asks for them.

    Raises:
        ConfigError: If the job has reserved another number.
        MachineError: If the cluster has no room in time.
    """
    return reserved(kind, len(wanted), where) or Bundles(reserve(wanted, seconds, where))


def reserved(kind: Kind, count: int, where: str) -> Bundles | None:
    """Return this process's bundles of the job's group: the service ``core/ray-reserved``.

    Args:
        kind: What they are for.
        count: Number of actors.
        where: Option that asks for them.

    Returns:
        None if no job has reserved any, or if this process has taken them already.

    Raises:
        ConfigError: If the job has reserved another number.
    """
    text, rank = os.environ.get(GROUP), os.environ.get(RANK)
    if text is None or rank is None or kind in _taken:
        return None
    job = json.loads(text)
    if kind not in job["kinds"]:
        return None
    first, there = job["kinds"][kind]
    if there != count:
        raise ConfigError(
            f"the Ray job has reserved {there} bundles for the actors of a training process, and "
            f"{count} actors are to start",
            where=where,
            remedy="change it with rlvr launch, which reserves them: --set, or in its CONFIG",
        )
    from ray import PlacementGroupID
    from ray.util.placement_group import PlacementGroup

    _taken.add(kind)
    group = PlacementGroup(PlacementGroupID.from_hex(job["id"]))
    return Bundles(group, first + int(rank) * job["each"], own=False)


def group_variable(id_: str, machines: int, actors: Mapping[str, Sequence[object]]) -> str:
    """Return the value of ``GROUP`` for a group of machines, then the actors of each process.

    Args:
        id_: The group's id, hexadecimal.
        machines: Number of bundles of machines.
        actors: Bundles of the actors of one process, by kind, in their order in the group.
    """
    first, kinds = machines, {}
    for kind, bundles in actors.items():
        kinds[kind] = (first, len(bundles))
        first += len(bundles)
    return json.dumps({"id": id_, "each": first - machines, "kinds": kinds})
