"""The guards that are on by default, and how a configuration's list is laid over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_core.plugins.registry import Registry

ALL = "defaults"
"""In ``use``: all of them together, to switch them off."""


def default_guards(registry: Registry) -> list[str]:
    """Return the guards of every run, in the order they look: those registered with a rank.

    A fault that sets off several is named first by the one that explains it.
    """
    ranked = [(entry.rank, entry.name) for entry in registry.of("guard") if entry.rank is not None]
    return [name for _, name in sorted(ranked)]


def lay_over(
    entries: Sequence[Mapping[str, Any]], names: Mapping[int, str], defaults: Sequence[str]
) -> list[str]:
    """Return the default guards that a configuration's list leaves on and does not name.

    Args:
        entries: The list as written.
        names: Full name of each entry that names a component, by its place.
        defaults: The default guards.
    """
    if any(entry["use"] == ALL and entry["off"] for entry in entries):
        return []
    return [name for name in defaults if name not in names.values()]


def in_order(entries: Sequence[Any], defaults: Sequence[str]) -> list[int]:
    """Return the places of the entries that are on: defaults in their order, then the others."""
    places = [n for n, ref in enumerate(entries) if not ref.off and ref.use != ALL]
    rank = {name: number for number, name in enumerate(defaults)}
    return sorted(places, key=lambda place: rank.get(entries[place].use, len(rank)))
