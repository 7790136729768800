"""Guard ``seeds``: completions of one problem must differ when chance says they would (T18)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlvr_core.api import RunError

if TYPE_CHECKING:
    from rlvr_core.api import Group

NATS = 60.0
"""Surprise at which identical completions are no accident: odds of one in e^60."""


def check(groups: Sequence[Group]) -> None:
    """Stop when whole groups repeat one completion that should almost never repeat.

    The chance that the other members of a group sample the first one's tokens again is the product
    of those tokens' probabilities, once per member; it is summed as surprise over all groups whose
    members are identical.

    Raises:
        RunError: If the surprise is above ``NATS``.
    """
    surprise = 0.0
    repeats = 0
    for group in groups:
        completions = [member.completion for member in group.members]
        if len(completions) < 2 or len({c.token_ids for c in completions}) > 1:
            continue
        repeats += 1
        surprise -= sum(completions[0].logprobs) * (len(completions) - 1)
    if surprise > NATS:
        raise RunError(
            f"guard seeds: {repeats} of {len(groups)} groups hold one completion repeated, which "
            f"independent sampling would do with odds of 1 in e^{surprise:.0f}",
            remedy="the engine ignores the seed of each completion; see docs/guards.md#seeds",
        )


def unique_rate(groups: Sequence[Group]) -> float:
    """Distinct completions over completions, within groups; 1.0 when all differ."""
    total = sum(len(group.members) for group in groups)
    distinct = sum(len({m.completion.token_ids for m in group.members}) for group in groups)
    return distinct / total if total else 1.0
