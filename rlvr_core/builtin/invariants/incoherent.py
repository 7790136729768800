"""What is wrong, and where, if tokens are not those that the random numbers of their seeds draw."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rlvr_core.builtin.invariants.calibration import COLD, HOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rlvr_core.builtin.invariants.bets import Token

Z = 4.0
"""Standard deviations by which the surprise of tokens differs from its expectation in no sample."""

_OTHERS = (
    "some completions have the seeds of others, or seeds repeat: look at how seeds are handed to "
    "the engine and its rows; or more completions are sampled than are wanted, and some are "
    "chosen, such as shorter or better ones"
)
_REPEATED = (
    "random numbers repeat within a completion, or rows share them: look at what computes the "
    "stream of a seed"
)
_GREEDY = (
    "the engine samples from another distribution than the one whose log-probs it reports: there "
    "it is greedy, a temperature of 0"
)


def diagnosis(tokens: Sequence[Token], part: str = "") -> tuple[str, str]:
    """Return what is wrong, by where numbers and tokens do not fit, and what to do."""
    if coherence(tokens) < 0.25 and nearness(tokens) < 0.4 and not part:
        return (
            "the seeds of completions are others than run seed, problem, policy version, draw and "
            "sample give",
            "look at what makes seeds (completion_seed), and whether the engine draws by the seed "
            "of the request: another run's, without version or draw, or a generator of its own",
        )
    rows: dict[int, list[Token]] = {}
    for token in tokens:
        rows.setdefault(token.row, []).append(token)
    astray = [token for token in tokens if not token.inside]
    lost = {row for row, own in rows.items() if nearness(own) < 0.3}
    by_place = part.startswith("tokens")
    if not by_place and sum(token.row in lost for token in astray) > 0.8 * len(astray):
        right = "" if len(lost) == len(rows) else ", the others have the right ones"
        return (
            f"{len(lost)} of {len(rows)} completions have other seeds than theirs{right}",
            _OTHERS,
        )
    return _of_positions(tokens, astray) or (
        "the engine samples from another distribution than the one whose log-probs it reports",
        "a temperature, top_k, top_p or min_p, a bias or a penalty that its log-probs leave out, "
        "random numbers of its seeds that are too coarse or shared, or, if it began after a sync, "
        "older weights for a part of a completion",
    )


def _of_positions(tokens: Sequence[Token], astray: Sequence[Token]) -> tuple[str, str] | None:
    """Return the same if it depends on the position of tokens in their completions."""
    places: dict[int, list[Token]] = {}
    for token in tokens:
        places.setdefault(token.position, []).append(token)
    bad = {place for place, own in places.items() if coherence(own) < 0.6 and outside(own) > 1}
    if not bad or sum(token.position in bad for token in astray) <= 0.8 * len(astray):
        return None
    there = [token for token in tokens if token.position in bad]
    if sum(token.likeliest for token in there) > 0.95 * len(there):
        return (
            f"at position {min(bad) + 1} of completions the likeliest token is always taken",
            _GREEDY,
        )
    if max(bad) > min(bad) and nearness(there) < 0.4:
        return (
            f"from token {min(bad) + 1} of completions on the random numbers are not those of "
            "their seeds",
            _REPEATED,
        )
    return None


def no_sample(scores_NK: Tensor, tokens: Sequence[Token]) -> tuple[str, str] | None:
    """Return what is wrong if tokens neither fit their numbers nor are a sample at all.

    Other seeds would leave them as surprising as their distributions say. None if they are that.
    """
    logp_N, entropy_N, variance_N = scores_NK[:, :3].unbind(1)
    excess = float((-logp_N - entropy_N).sum())
    z = excess / math.sqrt(max(float(variance_N.sum()), 1e-9))
    if coherence(tokens) > 0.5 or abs(z) < Z:
        return None
    return (
        f"{outside(tokens)} of {len(tokens)} tokens are not those that the random numbers of their "
        "seeds draw, and all are no sample of the distributions whose log-probs are reported: they "
        f"are {'less' if z < 0 else 'more'} surprising than these say, by "
        f"{abs(excess) / len(logp_N):.3g} nats a token (z = {z:+.1f})",
        COLD if z < 0 else HOT,
    )


def outside(tokens: Sequence[Token]) -> int:
    """Return how many tokens are not drawn by their own numbers."""
    return sum(not token.inside for token in tokens)


def nearness(tokens: Sequence[Token]) -> float:
    """Return 0 where numbers lie as far from their tokens as any would, 1 where they fit.

    A token of another distribution, drawn by its own number, is a neighbour of the right one.
    """
    chance = math.fsum(token.chance for token in tokens)
    return 1 - math.fsum(token.apart for token in tokens) / chance if chance > 0.05 else 1.0


def coherence(tokens: Sequence[Token]) -> float:
    """Return 1 where all tokens are those of their numbers, 0 where the two are independent."""
    chance = math.fsum(1 - token.width for token in tokens)
    return 1 - outside(tokens) / chance if chance > 0.5 else 1.0
