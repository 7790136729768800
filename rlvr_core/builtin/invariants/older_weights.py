"""Whether the later updates of a step are computed with the weights that the earlier ones left.

A pass may compute with a copy of the weights: casts that autocast keeps, gathered or compiled ones.
If that is not made anew after an update, the log-probs of a later one are those of the step's
start, to the last bit, while a plain pass of a row says that the policy has moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rlvr_core.builtin.invariants.check import compute_dtype
from rlvr_core.builtin.invariants.plain_pass import comparable, plain_logprobs

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import MicroBatch
    from rlvr_core.builtin.invariants.check import StepView

LEAST = 16
"""Tokens of an update whose log-probs are those of the step's start, at least."""

NATS = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 5e-3}
"""Mean change of a token's log-prob in a plain pass that no other pass can round away."""

FIRST, EVERY = 8, 8
"""Steps of a run that are looked at: the first ones, and then every so many."""


class OlderWeights:
    """Keeps what a plain pass makes of one row before the first update of a step."""

    def __init__(self) -> None:
        self._row: tuple[MicroBatch, int, Tensor, Tensor] | None = None

    def begin(self) -> None:
        """Forget the step before."""
        self._row = None

    @torch.no_grad()
    def wrong(self, view: StepView) -> str:
        """Return what is wrong with the weights of an update; empty if nothing is."""
        train = view.trainer.train
        due = view.step < FIRST or view.step % EVERY == 0
        several = train.updates_per_step > 1
        if not (due and several and view.seen and comparable(view.trainer)):
            return ""
        if view.update == 0:
            micro, mask_BT = view.seen[0].micro_batch, view.seen[0].batch.mask_BT
            row = int(mask_BT.sum(1).argmax())
            self._row = micro, row, mask_BT, self._plain(view, micro, row, mask_BT)
            return ""
        if self._row is None or not _as_at_the_start(view):
            return ""
        micro, row, mask_BT, before_M = self._row
        moved = float((self._plain(view, micro, row, mask_BT) - before_M).abs().mean())
        if not moved > NATS[compute_dtype(view.trainer)]:
            return ""
        return (
            f"in update {view.update + 1} of the step all log-probs are those of its start, to the "
            f"last bit, and a plain pass of a row says that the policy has moved by {moved:.3g} "
            "nats a token since (band: none): the pass computes with older weights than the update "
            "changes, such as casts or copies that are kept"
        )

    @staticmethod
    def _plain(view: StepView, micro: MicroBatch, row: int, mask_BT: Tensor) -> Tensor:
        return plain_logprobs(view.trainer, view.trainer.model, micro, row, mask_BT)


def _as_at_the_start(view: StepView) -> bool:
    """Whether no log-prob of an update differs from that of the step's start."""
    found = [
        (seen.batch.mask_BT.sum(), (seen.batch.mask_BT & (logp_BT != old_BT)).any())
        for seen in view.seen
        if any(loss.traits.needs_old for loss, _, _ in seen.losses)
        for logp_BT, old_BT in [(seen.batch.logp_BT, seen.batch.old_logp_BT)]
    ]
    if len(found) < len(view.seen):
        return False
    counts, others = (torch.stack(column).tolist() for column in zip(*found, strict=True))
    return sum(counts) >= LEAST and not any(others)
