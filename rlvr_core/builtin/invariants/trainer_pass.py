"""Which side is wrong where tokens do not fit their random numbers: the engine or the trainer.

The distributions that tokens are held against are the trainer's, of rows that are packed, chunked
and masked. A plain pass of the same rows, each by itself, says whether they are those of the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.builtin.invariants.check import compute_dtype
from rlvr_core.builtin.invariants.moments import COLUMN, LOGP, ROW
from rlvr_core.builtin.invariants.plain_pass import comparable, plain_distributions

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Group, MicroBatch
    from rlvr_core.builtin.invariants.bets import Token
    from rlvr_core.builtin.invariants.check import Trainer

NATS = {torch.float32: 0.01, torch.float16: 0.05, torch.bfloat16: 0.1}
"""Mean difference of two passes that is no rounding, at tokens that are astray."""


def wrong_pass(
    trainer: Trainer, groups: Sequence[Group], scores_NK: Tensor, tokens: Sequence[Token]
) -> tuple[str, str] | None:
    """Return what is wrong with the trainer's pass, with a remedy; None if nothing is known to be.

    Args:
        trainer: The policy's trainer, alone in its run: other processes take no part.
        groups: Groups whose tokens were looked at.
        scores_NK: What its pass made of them.
        tokens: The tokens.
    """
    if trainer.ranks.world > 1 or not comparable(trainer):
        return None
    astray = {(token.row, token.position) for token in tokens if not token.inside}
    first, worst = _worst(groups, Counter(row for row, _ in astray))
    plain_N4 = trainer.token_scores([worst], _Plain(trainer)).double()
    plain = {(first + int(r), int(c)): p for p, r, c in plain_N4[:, :3].tolist()}
    own = {(int(r), int(c)): p for r, c, p in scores_NK[:, [ROW, COLUMN, LOGP]].tolist()}
    apart = [abs(own[place] - plain[place]) for place in astray & plain.keys()]
    mean = sum(apart) / max(1, len(apart))
    if not mean > NATS[compute_dtype(trainer)]:
        return None
    return (
        f"tokens do not fit the random numbers of their seeds, because the log-probs of the "
        f"trainer are wrong: its pass and a plain pass of the same rows, one by one, differ by "
        f"{mean:.3g} nats at {len(apart)} such tokens of problem {worst.problem.id}",
        "look at the trainer's pass: positions, packing and attention of rows that share a pass, "
        "padding, temperature, or weights that are kept from before",
    )


def _worst(groups: Sequence[Group], astray: Counter[int]) -> tuple[int, Group]:
    """Return the group that has most tokens astray, and the place of its first completion."""
    first, found = 0, []
    for group in groups:
        rows = range(first, first + len(group.members))
        found.append((sum(astray[row] for row in rows), -first, group))
        first = rows.stop
    _, place, group = max(found, key=lambda one: one[:2])
    return -place, group


class _Plain:
    """Computes log-prob, row and column of each sampled token, row by row."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def __call__(self, model: Any, batch: MicroBatch, **_: Any) -> tuple[Tensor, ...]:
        logp_BT = batch.behaviour_logp_BT.new_zeros(batch.mask_BT.shape)
        for row, length in enumerate(batch.completion_len_B.tolist()):
            logp_LV = plain_distributions(self._trainer, model, batch, row)
            ids_L1 = batch.completion_ids_BT[row, :length, None]
            logp_BT[row, :length] = logp_LV.gather(-1, ids_L1)[:, 0].to(logp_BT.dtype)
        row_BT = batch.group_B[:, None].expand_as(logp_BT)
        column_BT = torch.arange(logp_BT.shape[1], device=logp_BT.device).expand_as(logp_BT)
        return logp_BT, row_BT, column_BT
