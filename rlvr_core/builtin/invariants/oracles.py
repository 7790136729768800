"""Advantages by plain formulas, one completion at a time: beside the code that computes them all.

Each oracle is given the rewards of a step by group, None where a completion has none, and returns
advantages of the same shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

Rewards = Sequence[Sequence[float | None]]
Advantages = list[list[float]]
Oracle = Callable[[Rewards], Advantages]

MOST_SUBSETS = 20_000
"""Subsets of a group that are gone through, at most."""


def oracle_of(component: type[Any], options: Mapping[str, Any]) -> Oracle | None:
    """Return the oracle of an estimator; None for one that is not known.

    Args:
        component: The estimator's class.
        options: Its options from the config.
    """
    where = f"{component.__module__}:{component.__qualname__}"
    if where in _BY_GROUP and options.get("combine", "sum_then_normalise") == "sum_then_normalise":
        return _BY_GROUP[where]
    if where == "rlvr_core.builtin.advantages.outcomes:PassAtK":
        k, form = int(options.get("k", 4)), str(options.get("form", "normalised"))
        return lambda rewards: [pass_at_k(group, k, form) for group in rewards]
    return None


def _per_group(formula: Callable[[list[float], float], float]) -> Oracle:
    """Make an oracle of a formula of all rewards of a group and one of them."""

    def oracle(rewards: Rewards) -> Advantages:
        found = []
        for group in rewards:
            known = [reward for reward in group if reward is not None]
            alone = len(known) < 2
            found.append([0.0 if r is None or alone else formula(known, r) for r in group])
        return found

    return oracle


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _std(values: Sequence[float], ddof: int = 0) -> float:
    mean = _mean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - ddof))


def _centered(known: list[float], reward: float) -> float:
    return reward - _mean(known)


def _scaled(known: list[float], reward: float) -> float:
    return (reward - _mean(known)) / max(_std(known), 1e-6)


def _scaled_ddof1(known: list[float], reward: float) -> float:
    return (reward - _mean(known)) / (_std(known, 1) + 1e-4)


def _leave_one_out(known: list[float], reward: float) -> float:
    others = (math.fsum(known) - reward) / (len(known) - 1)
    return reward - others


def _over_mean(known: list[float], reward: float) -> float:
    mean = _mean(known)
    return (reward - mean) / mean if mean > 0 else 0.0


def _over_step(rewards: Rewards) -> Advantages:
    """Return the centered rewards over the standard deviation of the step."""
    known = [reward for group in rewards for reward in group if reward is not None]
    centered = _per_group(_centered)(rewards)
    scale = _std(known) + 1e-4 if known else 1.0
    return [[value / scale for value in group] for group in centered]


def pass_at_k(group: Sequence[float | None], k: int, form: str) -> list[float]:
    """Return the advantages of one group, by going through its subsets of size k."""
    places = [place for place, reward in enumerate(group) if reward is not None]
    rewards = {place: float(group[place] or 0.0) for place in places}
    found = [0.0] * len(group)
    if len(places) < max(2, k):
        return found
    if math.comb(len(places), k) > MOST_SUBSETS:
        return [math.nan] * len(group)
    subsets = list(combinations(places, k))
    best = [max(rewards[place] for place in subset) for subset in subsets]
    std = _std(best)
    for place in places:
        with_it = [number for number, subset in enumerate(subsets) if place in subset]
        if form == "normalised":
            if std >= 1e-6:
                found[place] = (_mean([best[n] for n in with_it]) - _mean(best)) / std
            continue
        without = [
            max((rewards[other] for other in subsets[n] if other != place), default=0.0)
            for n in with_it
        ]
        gains = [best[n] - other for n, other in zip(with_it, without, strict=True)]
        found[place] = k * _mean(gains)
    return found


_BY_GROUP: Mapping[str, Oracle] = {
    "rlvr_core.advantages:Group": _per_group(_scaled),
    "rlvr_core.advantages:Center": _per_group(_centered),
    "rlvr_core.advantages:Batch": _over_step,
    "rlvr_core.advantages:Rloo": _per_group(_leave_one_out),
    "rlvr_core.advantages:GroupStdDdof1": _per_group(_scaled_ddof1),
    "rlvr_core.builtin.advantages.outcomes:MaxRL": _per_group(_over_mean),
}


def normalise_then_sum(
    scores: Sequence[Sequence[Sequence[float | None]]], weights: Sequence[float], name: str
) -> Advantages | None:
    """Return GDPO's advantages: of each reward by itself, then their weighted sum at deviation 1.

    Args:
        scores: Scores by group, completion and reward; None where there is none.
        weights: Weight of each reward.
        name: Class of the estimator that each reward is given to.

    Returns:
        The advantages; None where no completion of a group of two or more has all its scores.
    """
    oracle = _BY_GROUP[f"rlvr_core.advantages:{name}"]
    used = [number for number, weight in enumerate(weights) if weight != 0]
    whole = [[all(one[k] is not None for k in used) for one in group] for group in scores]
    total = [[0.0] * len(group) for group in scores]
    for k in used:
        column = [
            [one[k] if ok else None for one, ok in zip(group, oks, strict=True)]
            for group, oks in zip(scores, whole, strict=True)
        ]
        for place, values in enumerate(oracle(column)):
            for number, value in enumerate(values):
                total[place][number] += weights[k] * value
    useful = [[ok and sum(oks) > 1 for ok in oks] for oks in whole]
    known = [
        value
        for values, oks in zip(total, useful, strict=True)
        for value, ok in zip(values, oks, strict=True)
        if ok
    ]
    if not known:
        return None
    mean, scale = _mean(known), _std(known, 1 if name == "GroupStdDdof1" else 0) + 1e-4
    return [
        [(value - mean) / scale if ok else 0.0 for value, ok in zip(values, oks, strict=True)]
        for values, oks in zip(total, useful, strict=True)
    ]


def cause(pairs: Sequence[tuple[float, float]]) -> str:
    """Return what turned the right advantages (second) into those used (first), in words."""
    norm = math.fsum(e * e for _, e in pairs)
    factor = math.fsum(a * e for a, e in pairs) / norm if norm > 0 else math.nan
    if factor and all(abs(a - factor * e) <= 0.01 * max(abs(factor * e), 0.01) for a, e in pairs):
        return (
            f"all are {factor:.4g} times what they should be: look for a sign, a scale or a "
            "normalisation that is applied twice or not at all"
        )
    shift = math.fsum(a - e for a, e in pairs) / len(pairs)
    if all(abs(a - e - shift) <= 0.01 * max(abs(shift), 0.01) for a, e in pairs):
        return f"all are shifted by {shift:+.4g}: the baseline is not the group's mean"
    if sorted(round(a, 3) for a, _ in pairs) == sorted(round(e, 3) for _, e in pairs):
        return "the values are right but belong to other completions: their order was mixed up"
    return (
        "the baseline or the scale is that of another group, or advantages are mixed up between "
        "completions"
    )
