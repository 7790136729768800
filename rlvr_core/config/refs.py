"""Which places of a configuration name a component, and of which kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlvr_core.api import Kind
from rlvr_core.config.tree import Loc

COMPONENTS: dict[Loc, Kind] = {
    ("data", "sources", "*"): "dataset",
    ("sampler",): "sampler",
    ("rewards", "*"): "verifier",
    ("environment",): "environment",
    ("engine",): "engine",
    ("advantage",): "advantage",
    ("loss",): "loss",
    ("loss", "data"): "dataset",
    ("loss", "*"): "loss",
    ("loss", "*", "data"): "dataset",
    ("eval", "tasks", "*"): "eval_task",
    ("guards", "use", "*"): "guard",
    ("train", "optimizer"): "optimizer",
    ("train", "lr_schedule"): "schedule",
    ("track", "*"): "tracker",
}
"""Kind by place; ``*`` is any position of a list."""

AUTO: dict[Loc, str] = {
    ("rewards", "*"): "takes the verifier of each problem",
    ("environment",): "takes the environment of each problem that has one",
    ("engine",): "chooses the engine when the run starts",
    ("advantage",): "takes the estimator that the loss was published with",
}
"""Where ``use: auto`` is no component but a choice made later, and what it means there."""


def pattern(loc: Loc) -> Loc:
    """``loc`` with ``*`` for every list position."""
    return tuple("*" if isinstance(step, int) else step for step in loc)


def kind_at(loc: Loc) -> Kind | None:
    """Kind of the component named at ``loc``; None where none is."""
    return COMPONENTS.get(pattern(loc))


def places(data: Any) -> Iterator[tuple[Loc, Kind, Any]]:
    """Every component reference in plain data, well-formed or not, in the order of the model."""
    for places_of, kind in COMPONENTS.items():
        yield from ((loc, kind, value) for loc, value in _below(data, places_of, ()))


def _below(data: Any, steps: Loc, loc: Loc) -> Iterator[tuple[Loc, Any]]:
    if not steps:
        yield loc, data
    elif steps[0] == "*" and isinstance(data, list):
        for index, item in enumerate(data):
            yield from _below(item, steps[1:], (*loc, index))
    elif isinstance(data, dict) and steps[0] in data:
        yield from _below(data[steps[0]], steps[1:], (*loc, steps[0]))


def same_component(one: Any, other: Any) -> bool:
    """Whether two names mean one component: equal, or one the short form of the other."""
    if not (isinstance(one, str) and isinstance(other, str)):
        return False
    short = "/" not in one or "/" not in other
    return one == other or (short and one.rpartition("/")[2] == other.rpartition("/")[2])
