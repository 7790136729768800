"""A configuration before validation: values that remember the file and line they came from.

Also defines which locations name a component, and of which kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:  # reading a finished run parses YAML, and must not wait for pydantic
    from rlvr_core.api import Kind

Loc = tuple[str | int, ...]
"""Location of a value: keys and list positions from the root."""

COMPONENTS: dict[Loc, Kind | Literal["verifier_pool"]] = {
    ("data", "sources", "*"): "dataset",
    ("sampler",): "sampler",
    ("rewards", "*"): "verifier",
    ("verify", "pool"): "verifier_pool",
    ("environment",): "environment",
    ("engine",): "engine",
    ("engine", "transport"): "transport",
    ("advantage",): "advantage",
    ("loss",): "loss",
    ("loss", "data"): "dataset",
    ("loss", "*"): "loss",
    ("loss", "*", "data"): "dataset",
    ("eval", "tasks", "*"): "eval_task",
    ("guards", "*"): "guard",
    ("train", "optimizer"): "optimizer",
    ("train", "lr_schedule"): "schedule",
    ("track", "*"): "tracker",
}
"""Kind of the component at each location; ``*`` stands for any list position."""

AUTO: dict[Loc, str] = {
    ("rewards", "*"): "takes the verifier of each problem",
    ("environment",): "takes the environment of each problem that has one",
    ("engine",): "chooses the engine when the run starts",
    ("engine", "transport"): "leaves the choice to the engine",
    ("advantage",): "takes the estimator that the loss was published with",
}
"""Locations where ``use: auto`` names no component but a choice made later, and its meaning."""


class Mark(NamedTuple):
    """Where a value was written.

    Attributes:
        place: A file, or the ``--set`` option.
        line: Counted from 1; 0 if there are no lines.
    """

    place: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.place}:{self.line}" if self.line else self.place

    @property
    def by_option(self) -> bool:
        """Whether the value came from a command-line option."""
        return self.line == 0


@dataclass(slots=True)
class Node:
    """A value with the places where it and its key were written.

    Attributes:
        value: A scalar, a list of nodes or a mapping of nodes.
        mark: Where the value was written.
        key_mark: Where its key was written; in lists and at the root, the value's own mark.
        raw: A scalar as written; None for lists, mappings and text created by the program.
    """

    value: Any
    mark: Mark
    key_mark: Mark
    raw: str | None = None

    def child(self, step: str | int) -> Node | None:
        """Return the child node at a key or list position; None if there is none."""
        if isinstance(self.value, dict):
            child: Node | None = self.value.get(step)
            return child
        if isinstance(self.value, list) and isinstance(step, int) and 0 <= step < len(self.value):
            item: Node = self.value[step]
            return item
        return None

    def plain(self) -> Any:
        """Return the value without marks."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def walk(self, loc: Loc = ()) -> Iterator[tuple[Loc, Node]]:
        """Yield this node and all nodes below it, each with its location."""
        yield loc, self
        if isinstance(self.value, dict):
            for key, node in self.value.items():
                yield from node.walk((*loc, key))
        elif isinstance(self.value, list):
            for index, node in enumerate(self.value):
                yield from node.walk((*loc, index))

    def find(self, loc: Loc) -> Node | None:
        """Return the node at ``loc``; None if there is none."""
        node: Node | None = self
        for step in loc:
            node = None if node is None else node.child(step)
        return node

    def where(self, loc: Loc, key: bool = False) -> str:
        """Return ``file:line (key.path)`` of the nearest written value at or above ``loc``."""
        node = self.nearest(loc)
        nested = isinstance(node.value, dict | list)
        mark = node.key_mark if nested or key else node.mark
        return f"{mark} ({dotted(loc)})" if loc and mark.place else str(mark)

    def nearest(self, loc: Loc) -> Node:
        """Return the node at ``loc``, or its nearest ancestor that was written."""
        node = self
        for step in loc:
            below = node.child(step)
            if below is None:
                break
            node = below
        return node


def made(data: Any, mark: Mark) -> Node:
    """Convert plain data to nodes that all carry one mark."""
    if isinstance(data, dict):
        data = {key: made(value, mark) for key, value in data.items()}
    elif isinstance(data, list):
        data = [made(value, mark) for value in data]
    return Node(data, mark, mark)


def dotted(loc: Loc) -> str:
    """Format ``("data", "sources", 0)`` as ``data.sources.0``."""
    return ".".join(str(step) for step in loc)


def shown(value: Any) -> str:
    """Format a value as YAML, truncated to one line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict | list | tuple):
        kind = "mapping" if isinstance(value, dict) else f"list of {len(value)}"
        return f"a {kind}" if value else f"an empty {kind.partition(' ')[0]}"
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    return str(value)


def pattern(loc: Loc) -> Loc:
    """Replace every list position in ``loc`` by ``*``."""
    return tuple("*" if isinstance(step, int) else step for step in loc)


def kind_at(loc: Loc) -> str | None:
    """Return the kind of the component named at ``loc``; None if none is named there."""
    return COMPONENTS.get(pattern(loc))


def places(data: Any) -> Iterator[tuple[Loc, str, Any]]:
    """Yield every component reference in plain data, valid or not, in the order of the model."""
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
    """Whether two names mean one component: equal, or one is the short form of the other."""
    if not (isinstance(one, str) and isinstance(other, str)):
        return False
    short = "/" not in one or "/" not in other
    return one == other or (short and one.rpartition("/")[2] == other.rpartition("/")[2])


def numbered(names: Iterable[str]) -> list[str]:
    """Return the names of parts; those that are named again get ``#2`` and so on."""
    seen: Counter[str] = Counter()
    distinct = []
    for name in names:
        seen[name] += 1
        distinct.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return distinct
