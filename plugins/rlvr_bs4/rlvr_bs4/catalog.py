"""The archetypes by id. A family of them is a module; add one by adding its name here."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from functools import cache
from typing import TypeGuard

from rlvr_bs4.archetype import Archetype
from rlvr_core.api import DataError

FAMILIES = (
    "primer",
    "core",
    "traversal",
    "text",
    "tables",
    "missing",
    "gotchas",
    "structured",
    "embedded",
    "forms",
    "form_purpose",
    "choosing",
    "products",
    "nesting",
    "drawing",
    "journeys",
    "languages",
    "limits",
    "walls",
)
"""Modules of ``rlvr_bs4.archetypes``, in the order archetypes are listed."""


@cache
def everything() -> Mapping[str, Archetype]:
    """Every archetype, by id."""
    archetypes: dict[str, Archetype] = {}
    for family in FAMILIES:
        module = importlib.import_module(f"rlvr_bs4.archetypes.{family}")
        for value in vars(module).values():
            if _whole(value, module.__name__):
                assert value.id not in archetypes, value.id
                archetypes[value.id] = value()
    return archetypes


def get(id: str) -> Archetype:
    """The archetype with this id; ``extract_by_id`` does for ``primer.extract_by_id``.

    Raises:
        DataError: If none or several match.
    """
    known = everything()
    if id in known:
        return known[id]
    short = [full for full in known if full.partition(".")[2] == id]
    if len(short) == 1:
        return known[short[0]]
    close = short or difflib.get_close_matches(id, known, n=3, cutoff=0.5)
    raise DataError(
        f"there is no archetype '{id}'",
        remedy=[f"did you mean: {', '.join(close)}?"] if close else "see: rlvr bs4 preview --list",
    )


def _whole(value: object, module: str) -> TypeGuard[type[Archetype]]:
    """Whether it is an archetype of this module, and not the base of some."""
    return (
        isinstance(value, type)
        and issubclass(value, Archetype)
        and value.__module__ == module
        and "id" in vars(value)
    )
