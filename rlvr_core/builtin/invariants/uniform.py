"""How far down its distribution each sampled token is: a number that has to be uniform.

Order the tokens of a distribution by probability, the likeliest first. The mass before the sampled
token, plus a random share of its own, is uniform on [0, 1] (the probability integral transform),
whatever the distribution, at every position, and independent of the tokens before. An engine that
takes the likeliest token at one position, never draws the unlikely ones, or samples hotter than it
says moves the share of tokens beyond some depth, and bets on those shares win.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Json

DEPTHS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
"""Masses beyond which tokens are counted."""

FACTORS = (0.1, 0.5, 1.5, 3.0)
"""By how many times oftener than they should tokens are bet to be there."""

POSITIONS: Mapping[str, tuple[int, float]] = {
    "all tokens": (0, math.inf),
    "the first token": (0, 1),
    "the second token": (1, 2),
    "tokens 3 and 4": (2, 4),
    "tokens 5 to 8": (4, 8),
    "tokens 9 to 16": (8, 16),
    "tokens 17 to 32": (16, 32),
    "tokens after the 32nd": (32, math.inf),
}
"""Places in completions that are counted by themselves."""

HORIZON = 1000
"""Steps over which the stake is placed."""

NOTHING = -1e9


class Depths:
    """Bets against "so many tokens are beyond each depth", by position; each step may be looked at.

    The wealth of a bet is a supermartingale as long as the true share is within a slack of what it
    should be, so that rounding is no evidence. The mean of all reaches 1/a in ``HORIZON`` steps
    with odds of at most a.
    """

    def __init__(self) -> None:
        self._bets = [
            (name, depth, factor)
            for name in POSITIONS
            for depth in DEPTHS
            for factor in FACTORS
            if factor * (1 - depth) < 1
        ]
        self._wealth = [NOTHING] * len(self._bets)
        self._counts = {(name, depth): [0, 0] for name in POSITIONS for depth in DEPTHS}

    def add(self, position_N: Tensor, depth_N: Tensor, slack: float) -> None:
        """Bet on the tokens of a step.

        Args:
            position_N: Where each is in its completion, from 0.
            depth_N: How far down its distribution, from 0 to 1.
            slack: Share of a share by which it may be off on account of rounding.
        """
        counts: dict[tuple[str, float], tuple[int, int]] = {}
        for name, (low, high) in POSITIONS.items():
            own_n = depth_N[(position_N >= low) & (position_N < high)]
            for depth in DEPTHS:
                counts[name, depth] = len(own_n), int((own_n > depth).sum())
        for place, (name, depth, factor) in enumerate(self._bets):
            n, beyond = counts[name, depth]
            before, stake = self._wealth[place], -math.log(HORIZON)
            most = max(before, stake)
            staked = most + math.log(math.exp(before - most) + math.exp(stake - most))
            self._wealth[place] = max(NOTHING, staked + _gain(n, beyond, 1 - depth, factor, slack))
        for key, (n, beyond) in counts.items():
            self._counts[key][0] += n
            self._counts[key][1] += beyond

    def evidence(self) -> float:
        """Return the natural log of the mean wealth."""
        most = max(self._wealth)
        total = math.fsum(math.exp(one - most) for one in self._wealth)
        return most + math.log(total / len(self._wealth))

    def worst(self) -> tuple[str, bool, str]:
        """Return where the best bet won, whether too few tokens are deep there, and the counts."""
        name, depth, factor = self._bets[self._wealth.index(max(self._wealth))]
        n, beyond = self._counts[name, depth]
        return (
            name,
            factor < 1,
            f"{beyond} of {n} lie beyond the likeliest {depth:.0%} of their distribution, and "
            f"{n * (1 - depth):.0f} +- {math.sqrt(n * depth * (1 - depth)):.0f} should",
        )

    def state_dict(self) -> dict[str, Json]:
        """Return wealth and counts."""
        return {"wealth": list(self._wealth), "counts": list(self._counts.values())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        self._wealth = list(state["wealth"])
        kept: Sequence[Sequence[int]] = state["counts"]
        self._counts = {key: list(pair) for key, pair in zip(self._counts, kept, strict=True)}


def _gain(n: int, beyond: int, share: float, factor: float, slack: float) -> float:
    """Return what a bet wins by ``beyond`` of ``n`` tokens, of which ``share`` are expected."""
    fair = share * (1 - slack if factor < 1 else 1 + slack)
    bet = share * factor
    return beyond * math.log(bet / fair) + (n - beyond) * math.log((1 - bet) / (1 - fair))
