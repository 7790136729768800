"""A configuration before it is checked: values that remember the file and line they came from.

Also which places of it name a component, and of which kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # looking at a run reads YAML, and must not wait for pydantic
    from rlvr_core.api import Kind

Loc = tuple[str | int, ...]
"""Where a value is: keys and list positions from the top."""

COMPONENTS: dict[Loc, Kind] = {
    ("data", "sources", "*"): "dataset",
    ("sampler",): "sampler",
    ("rewards", "*"): "verifier",
    ("environment",): "environment",
    ("engine",): "engine",
    ("engine", "transport"): "transport",
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
    ("engine", "transport"): "leaves the choice to the engine",
    ("advantage",): "takes the estimator that the loss was published with",
}
"""Where ``use: auto`` is no component but a choice made later, and what it means there."""


class Mark(NamedTuple):
    """Where something was written.

    Attributes:
        place: A file, or the ``--set`` option it came by.
        line: Counted from 1; 0 where there are no lines.
    """

    place: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.place}:{self.line}" if self.line else self.place

    @property
    def by_option(self) -> bool:
        """Whether it came from the command line."""
        return self.line == 0


@dataclass(slots=True)
class Node:
    """A value with its marks.

    Attributes:
        value: A scalar, a list of nodes or a mapping of nodes.
        mark: Where the value is.
        key_mark: Where its key is; the value's own mark in lists and at the top.
        raw: A scalar as it was written; None for lists, mappings and text made by the program.
    """

    value: Any
    mark: Mark
    key_mark: Mark
    raw: str | None = None

    def child(self, step: str | int) -> Node | None:
        """The node one step down, or None."""
        if isinstance(self.value, dict):
            child: Node | None = self.value.get(step)
            return child
        if isinstance(self.value, list) and isinstance(step, int) and 0 <= step < len(self.value):
            item: Node = self.value[step]
            return item
        return None

    def plain(self) -> Any:
        """The value without marks."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def walk(self, loc: Loc = ()) -> Iterator[tuple[Loc, Node]]:
        """This node and all below it, each with its place."""
        yield loc, self
        if isinstance(self.value, dict):
            for key, node in self.value.items():
                yield from node.walk((*loc, key))
        elif isinstance(self.value, list):
            for index, node in enumerate(self.value):
                yield from node.walk((*loc, index))

    def find(self, loc: Loc) -> Node | None:
        """The node at ``loc``, or None."""
        node: Node | None = self
        for step in loc:
            node = None if node is None else node.child(step)
        return node

    def where(self, loc: Loc, key: bool = False) -> str:
        """``file:line (key.path)`` of the nearest written thing at or above ``loc``."""
        node = self.nearest(loc)
        nested = isinstance(node.value, dict | list)
        mark = node.key_mark if nested or key else node.mark
        return f"{mark} ({dotted(loc)})" if loc and mark.place else str(mark)

    def nearest(self, loc: Loc) -> Node:
        """The node at ``loc``, or the closest above it that was written."""
        node = self
        for step in loc:
            below = node.child(step)
            if below is None:
                break
            node = below
        return node


def made(data: Any, mark: Mark) -> Node:
    """Plain data as nodes that all carry one mark."""
    if isinstance(data, dict):
        data = {key: made(value, mark) for key, value in data.items()}
    elif isinstance(data, list):
        data = [made(value, mark) for value in data]
    return Node(data, mark, mark)


def dotted(loc: Loc) -> str:
    """``("data", "sources", 0)`` as ``data.sources.0``."""
    return ".".join(str(step) for step in loc)


def shown(value: Any) -> str:
    """A value as YAML would have it, cut to a line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict | list | tuple):
        kind = "mapping" if isinstance(value, dict) else f"list of {len(value)}"
        return f"a {kind}" if value else f"an empty {kind.partition(' ')[0]}"
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    return str(value)


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
