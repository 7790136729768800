"""Which process trains on which rows: about as many tokens each, the rows of a prompt together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_core.step.batch import MicroBatch, Row, micro_batches


@dataclass(frozen=True, slots=True)
class Work:
    """A micro-batch and whether it counts.

    A process that has fewer micro-batches than another may have to compute some more, whose loss is
    multiplied by 0.
    """

    batch: MicroBatch
    counts: bool = True


def shard_rows(rows: Sequence[Row], world: int) -> list[list[Row]]:
    """Split the rows of a step among processes.

    A prompt is computed once for all its rows, so they stay together; only rows that are more than
    a fair share are parted. The heaviest goes first, each to the process with the least so far. A
    process may get none.

    Args:
        rows: All rows of the step; those without a loss token are left out.
        world: Processes.

    Returns:
        Rows by process.
    """
    if world == 1:
        return [list(rows)]
    groups: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        if any(row.loss_mask):
            groups.setdefault(row.prompt_ids, []).append(row)
    fair = sum(map(_weight, groups.values())) / world
    hands: list[list[Row]] = [[] for _ in range(world)]
    weights = [0] * world
    pieces = [piece for group in groups.values() for piece in _pieces(group, fair)]
    for piece in sorted(pieces, key=_weight, reverse=True):
        least = weights.index(min(weights))
        hands[least].extend(piece)
        weights[least] += _weight(piece)
    return hands


def idle_work(rows: Sequence[Row], n: int) -> list[Work]:
    """``n`` micro-batches that do not count, of the shortest row that has a loss token."""
    trained = [row for row in rows if any(row.loss_mask)]
    shortest = min(trained, key=lambda row: len(row.prompt_ids) + len(row.token_ids))
    (batch,) = micro_batches([shortest], tokens_per_micro_batch=1)
    return [Work(batch, counts=False)] * n


def _weight(group: Sequence[Row]) -> int:
    """Tokens to compute for rows of one prompt."""
    return len(group[0].prompt_ids) + sum(len(row.token_ids) for row in group)


def _pieces(group: Sequence[Row], fair: float) -> list[Sequence[Row]]:
    """A group in as many pieces as it is fair shares, the longest rows spread over them."""
    pieces = min(len(group), math.ceil(_weight(group) / fair))
    by_length = sorted(group, key=lambda row: -len(row.token_ids))
    return [by_length[place::pieces] for place in range(pieces)]
