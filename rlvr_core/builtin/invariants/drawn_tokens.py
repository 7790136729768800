"""Which number of its seed's stream draws each token of a completion, and where it has to lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr_core.builtin.invariants.bets import Token, token_at
from rlvr_core.builtin.invariants.moments import AHEAD, BELOW, COLUMN, LOGP, ROW
from rlvr_core.builtin.invariants.seeds import turn_seed

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Completion, Group

_GAMMA = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Slack:
    """What rounding may do.

    Attributes:
        edge: By how much the edges of a token's interval may be off.
        astray: Share of tokens that may be drawn by another number than theirs.
        half: Whether it is that of half precision, which moves many edges a little, and hardly one
            by ``FAR``.
        most: Largest width of an interval that counts: below 1 where rounding may keep another
            token at the edge of a truncation beside one that is otherwise sure.
    """

    edge: float
    astray: float
    half: bool = False
    most: float = 1.0


Row = list[tuple[int, float, float, bool]]
"""Of each token position, mass below it, its own, and whether none was likelier."""


def by_row(groups: Sequence[Group], scores_NK: Tensor) -> list[Row]:
    """Return the tokens of each completion."""
    rows: list[Row] = [[] for group in groups for _ in group.members]
    columns = scores_NK[:, [ROW, COLUMN, BELOW, LOGP, AHEAD]].tolist()
    for row, position, below, logp, ahead in columns:
        rows[int(row)].append((int(position), below, math.exp(min(0.0, logp)), ahead <= 0))
    return rows


def tokens_of(
    group: Group, rows: Sequence[Row], seeds: Sequence[int], at: tuple[int, int], slack: Slack
) -> list[Token]:
    """Return the tokens of a group with what seeds make of them.

    Args:
        group: The group.
        rows: Its completions.
        seeds: Of each of them.
        at: Place of its first completion among those looked at, and its own in the step.
        slack: What rounding may do.
    """
    found = []
    for sample, (member, row, seed) in enumerate(zip(group.members, rows, seeds, strict=True)):
        numbers = numbers_of(seed, member.completion) if row else []
        for position, below, p, likeliest in row if numbers else ():
            low, high = below - slack.edge, below + p + slack.edge
            where = at[0] + sample, sample, at[1], position
            token = token_at(where, low, high, numbers[position], likeliest=likeliest)
            token.width = min(token.width, slack.most)
            found.append(token)
    return found


def stream(seed: int, n: int) -> list[float]:
    """Return the first numbers of a seed's stream: SplitMix64 (Steele et al. 2014), 52 bits."""

    def mix(word: int) -> int:
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _WORD
        return word ^ (word >> 31)

    start = mix(seed ^ _GAMMA)
    return [(mix(start + (t + 1) * _GAMMA & _WORD) >> 12) / 2**52 for t in range(n)]


def numbers_of(seed: int, completion: Completion) -> list[float]:
    """Return the number that draws each token of a completion; an environment's tokens have 0.

    Empty where it is not known: of a conversation in branches, turns of others come in between.
    """
    script = completion.transcript
    if script is None:
        return stream(seed, len(completion.token_ids))
    if script.failed or completion.branches:
        return []
    numbers: list[float] = []
    written = 0
    for turn in script.turns:
        if turn.role == "assistant":
            numbers += stream(turn_seed(seed, written), turn.n_tokens)
            written += 1
        else:
            numbers += [0.0] * turn.n_tokens
    return numbers if len(numbers) == len(completion.token_ids) else []
