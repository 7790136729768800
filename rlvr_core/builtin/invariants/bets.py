"""Bets of the guard ``seeds`` against "the random numbers are coherent with the tokens".

A fault may be in one place only: one completion of each group, one group of each step, or late
tokens. So there are bets on all tokens together, and on those of each such part by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

ODDS = 1e-6
"""Odds of a false alarm in 1,000 steps, by all tokens together and again by all parts."""

PARTS = 48
"""Most parts that are bet on by themselves."""

HORIZON = 1000
"""Steps over which the stake is placed."""

SHARES = (0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
"""Shares of incoherent tokens that are bet on, between the one that is allowed and all."""

_NOTHING = -1e9
_SAMPLES, _PLACES = 16, 8


@dataclass(slots=True)
class Token:
    """One sampled token.

    Attributes:
        row: Place of its completion among those looked at.
        sample: Place of its completion in its group.
        group: Place of its group in the step.
        position: In the completion.
        width: Chance that a number that has nothing to do with it lies in its interval.
        apart: Distance of its own number from its interval; 0 inside.
        chance: Mean distance of a number that has nothing to do with it.
        likeliest: Whether no token was likelier.
    """

    row: int
    sample: int
    group: int
    position: int
    width: float
    apart: float
    chance: float
    likeliest: bool

    @property
    def inside(self) -> bool:
        """Whether its own number lies in its interval."""
        return self.apart <= 0


def token_at(
    where: tuple[int, int, int, int], low: float, high: float, number: float, *, likeliest: bool
) -> Token:
    """Return a token by its places, its interval, its number, and whether none was likelier."""
    low, high = max(0.0, low), min(1.0, high)
    apart = max(low - number, number - high, 0.0)
    return Token(*where, high - low, apart, (low**2 + (1 - high) ** 2) / 2, likeliest)


class Bets:
    """What the bets have won.

    Args:
        wealth: Log of the wealth by part and share, as ``wealth`` of an earlier object has it.
    """

    def __init__(self, wealth: Mapping[str, Sequence[float]] | None = None) -> None:
        self.wealth = {part: list(won) for part, won in (wealth or {}).items()}

    def add(self, tokens: Sequence[Token], allowed: float, kind: str = "") -> tuple[float, str]:
        """Bet on a step's tokens.

        Args:
            tokens: The tokens.
            allowed: Share of tokens that may be incoherent.
            kind: Distinguishes bets on the same tokens with other intervals.

        Returns:
            Evidence, which is an alarm from 1 on, and the part that has it: "", which stands for
            all tokens, if theirs is an alarm, or else the part with most.
        """
        parts: dict[str, list[list[float]]] = {"": []}
        for token in tokens:
            gains = [gain(token, allowed, share) for share in SHARES]
            for part in ("", *_parts(token)):
                parts.setdefault(part, []).append(gains)
        found = {
            part: self._settle(kind + part, gained) / -math.log(ODDS / PARTS if part else ODDS)
            for part, gained in parts.items()
        }
        most = "" if found[""] >= 1 else max(found, key=lambda part: found[part])
        return max(0.0, found[most]), most

    def _settle(self, part: str, gained: Sequence[Sequence[float]]) -> float:
        """Add the gains to what a part has won, after a stake; return the log of its wealth."""
        stake = -math.log(HORIZON)
        won = self.wealth.setdefault(part, [_NOTHING] * len(SHARES))
        for place, before in enumerate(won):
            more = math.fsum(gains[place] for gains in gained)
            won[place] = max(_log_sum(before, stake) + more, _NOTHING)
        return _log_sum(*won) - math.log(len(SHARES))


def farther(token: Token, by: float, most: float = 1.0) -> Token:
    """Return a token whose interval is wider by so much on either side, up to a width."""
    width = min(most, token.width + 2 * by)
    return replace(token, width=width, apart=max(0.0, token.apart - by))


def _parts(token: Token) -> list[str]:
    """Return the parts that a token is in."""
    first = 1 << ((token.position + 1).bit_length() - 1)
    parts = [f"tokens {first} to {2 * first - 1} of completions"]
    if token.sample < _SAMPLES:
        parts.append(f"completion {token.sample + 1} of each group")
    if token.group < _PLACES:
        parts.append(f"group {token.group + 1} of each step")
    return parts


def of_part(tokens: Sequence[Token], part: str) -> list[Token]:
    """Return the tokens of a part."""
    return [token for token in tokens if not part or part in _parts(token)]


def gain(token: Token, allowed: float, share: float) -> float:
    """Return what a bet on more incoherent tokens than are allowed wins by one."""
    bet = allowed + share * (1 - allowed)
    out = 1 - token.width
    if token.inside:
        return math.log((1 - bet * out) / (1 - allowed * out))
    return math.log(bet / allowed)


def _log_sum(*logs: float) -> float:
    most = max(logs)
    return most + math.log(math.fsum(math.exp(one - most) for one in logs))
