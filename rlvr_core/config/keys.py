"""Lists the keys of a configuration, with type, default and meaning, read off the models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from rlvr_core.config.model import RunConfig
from rlvr_core.config.tree import COMPONENTS, Loc, dotted
from rlvr_core.config.words import Schema, description, follow, schema_of, words


@dataclass(frozen=True, slots=True)
class Key:
    """One key.

    Attributes:
        loc: Where it is, ``*`` for any position of a list.
        type: What it takes, in words.
        required: Whether there is no default.
        default: Its default, as plain data.
        description: What it means.
        section: Whether it holds further keys, and is nothing by itself.
    """

    loc: Loc
    type: str
    required: bool
    default: Any
    description: str
    section: bool

    @property
    def path(self) -> str:
        """The dotted path."""
        return dotted(self.loc)

    def as_json(self) -> dict[str, Any]:
        """Return the data for ``--json``."""
        shown = {
            "key": self.path,
            "type": self.type,
            "required": self.required,
            "description": self.description,
        }
        return shown if self.required else {**shown, "default": self.default}


def run_keys() -> tuple[Key, ...]:
    """Yield the keys of a run's configuration, sections before their keys."""
    return tuple(_keys(schema_of(RunConfig), schema_of(RunConfig), ()))


def component_keys(config: type[BaseModel], loc: Loc) -> tuple[Key, ...]:
    """The options of a component named at ``loc``."""
    schema = schema_of(config)
    return tuple(_keys(schema, schema, (*loc, "with")))


def _keys(schema: Schema, root: Schema, loc: Loc) -> Iterator[Key]:
    required = schema.get("required", ())
    for name, raw in schema.get("properties", {}).items():
        inner = follow(raw, root)
        place = (*loc, name)
        deeper = list(_inside(inner, root, place))
        yield Key(
            place,
            words(inner, root),
            name in required,
            inner.get("default"),
            description(inner),
            bool(deeper),
        )
        yield from deeper


def _inside(schema: Schema, root: Schema, loc: Loc) -> Iterator[Key]:
    """Keys below one key; the ``use`` and ``with`` of a component are defined by the component."""
    branches = [follow(branch, root) for branch in schema.get("anyOf", ())]
    for branch in [schema, *branches]:
        items = branch.get("items")
        if isinstance(items, Mapping):
            yield from _inside(follow(items, root), root, (*loc, "*"))
        if "properties" in branch:
            for key in _keys(branch, root, loc):
                if not (loc in COMPONENTS and key.loc[-1] in ("use", "with")):
                    yield key
