"""Chooses the archetypes of a data set, their numbers of rows, and the order.

Everything here is a function of its arguments: the same ones give the same rows everywhere, and an
archetype more or less leaves the seeds of the others as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, get_args

from rlvr_bs4 import catalog
from rlvr_bs4.archetype import Archetype
from rlvr_bs4.generate import SEEDS, Split
from rlvr_bs4.world import stream
from rlvr_core.api import DataError

Mode = Literal["mvp", "phase2", "all", "hard_only", "tiered", "bootstrap", "primer"]
MODES: tuple[Mode, ...] = get_args(Mode)
PER_ARCHETYPE: Mapping[Split, int] = {"train": 1000, "eval": 100, "bench": 20}
"""Rows of each archetype in a whole split; a mode with weights shares their sum."""
_TIERS = {"primer": 0.0, "easy": 0.2, "medium": 0.4, "hard": 0.4}


def weights(mode: Mode, given: Mapping[str, float] = {}) -> dict[str, float]:
    """Weight of each archetype, those without any left out.

    Args:
        mode: A named choice.
        given: Weights by archetype, category or difficulty, which replace the mode's; the more
            special name counts. What is not named keeps its weight.

    Raises:
        DataError: If a name is unknown, a weight below zero, or nothing is left.
    """
    known = catalog.everything().values()
    weighted = _by_mode(mode, known)
    names = {*weighted, *(k.category for k in known), *_TIERS}
    unknown = [name for name in given if name not in names]
    if unknown or any(not weight >= 0 for weight in given.values()):
        raise DataError(
            f"weights of {', '.join(unknown)}" if unknown else "a weight is below zero",
            remedy="weights are by archetype, category or difficulty: rlvr bs4 preview --list",
        )
    for kind in known:
        for name in (kind.difficulty, kind.category, kind.id):
            if name in given:
                weighted[kind.id] = given[name] / (1 if name == kind.id else _members(known, name))
    positive = {id: weight for id, weight in weighted.items() if weight > 0}
    if not positive:
        raise DataError("every archetype has weight 0")
    return positive


def counts(weighted: Mapping[str, float], n: int) -> dict[str, int]:
    """How many rows each archetype gets: exactly ``n`` together, by largest remainder."""
    total = sum(weighted.values())
    shares = {id: n * weight / total for id, weight in weighted.items()}
    whole = {id: int(share) for id, share in shares.items()}
    by_rest = sorted(shares, key=lambda id: (whole[id] - shares[id], id))
    for id in by_rest[: n - sum(whole.values())]:
        whole[id] += 1
    return whole


def rows(weighted: Mapping[str, float], split: Split, n: int, seed: int) -> list[tuple[str, int]]:
    """Archetype and seed of each row.

    The first rows are of as many archetypes as there are, and after them each archetype is spread
    evenly over the rest, so that every prefix is nearly as mixed as the whole.

    Raises:
        DataError: If an archetype would need more rows than the split has seeds.
    """
    wanted = counts(weighted, n)
    most = max(wanted.values())
    if most > len(SEEDS[split]):
        raise DataError(
            f"{most} rows of one archetype are asked for, and split {split} has {len(SEEDS[split])}"
        )
    placed = []
    for id, count in wanted.items():
        rng = stream("rows", id, split, seed)
        seeds = rng.sample(SEEDS[split], count)
        offset = rng.random()
        for index, chosen in enumerate(seeds):
            at = offset - 1 if index == 0 else (index + offset) / count
            placed.append((at, id, chosen))
    return [(id, chosen) for _, id, chosen in sorted(placed)]


def _by_mode(mode: Mode, known: Iterable[Archetype]) -> dict[str, float]:
    tier_sizes = Counter(kind.difficulty for kind in known)
    rules: dict[Mode, Callable[[Archetype], float]] = {
        "mvp": lambda kind: kind.phase == 1,
        "phase2": lambda kind: kind.phase == 2,
        "all": lambda kind: True,
        "hard_only": lambda kind: kind.difficulty == "hard",
        "tiered": lambda kind: _TIERS[kind.difficulty] / tier_sizes[kind.difficulty],
        "bootstrap": lambda kind: kind.difficulty in ("primer", "easy"),
        "primer": lambda kind: kind.difficulty == "primer",
    }
    return {kind.id: float(rules[mode](kind)) for kind in known}


def _members(known: Iterable[Archetype], name: str) -> int:
    """How many archetypes a category or difficulty has, which share its weight."""
    return sum(name in (kind.category, kind.difficulty) for kind in known)
