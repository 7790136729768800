"""The guards that are on by default, and how a configuration's list is laid over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

DEFAULTS = (
    "core/watchdog",
    "core/preflight",
    "core/resume",
    "core/completions",
    "core/parity",
    "core/tokens",
    "core/advantages",
    "core/kl",
    "core/loss",
    "core/updates",
    "core/optimizer",
    "core/sync",
    "core/seeds",
    "core/canaries",
    "core/collapse",
    "core/idle",
    "core/gpu",
)
"""Guards of every run, in the order they look: a fault that sets off several is named first by the
one that explains it."""

ALL = "defaults"
"""In ``use``: all of them together, to switch them off."""


def lay_over(entries: Sequence[Mapping[str, Any]], names: Mapping[int, str]) -> list[str]:
    """Return the default guards that a configuration's list leaves on and does not name.

    Args:
        entries: The list as written.
        names: Full name of each entry that names a component, by its place.
    """
    if any(entry["use"] == ALL and entry["off"] for entry in entries):
        return []
    return [name for name in DEFAULTS if name not in names.values()]


def in_order(entries: Sequence[Any]) -> list[int]:
    """Return the places of the entries that are on: defaults in their order, then the others."""
    places = [n for n, ref in enumerate(entries) if not ref.off and ref.use != ALL]
    rank = {name: number for number, name in enumerate(DEFAULTS)}
    return sorted(places, key=lambda place: rank.get(entries[place].use, len(rank)))


def is_on(entries: Sequence[Any], name: str) -> bool:
    """Whether a resolved list of guards has this one on."""
    return any(entry.use == name and not entry.off for entry in entries)
