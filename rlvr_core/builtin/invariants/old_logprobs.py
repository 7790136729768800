"""Old log-probs of rows that a step reads again: those of its start, whatever has moved since.

In the first iteration a row's own log-probs may stand for them. In a later one they are no longer
its own, because the policy has moved in between: where they are, to the last bit, the ratio is 1
and nothing is clipped (Schulman et al. 2017, section 3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import MicroBatch
    from rlvr_core.builtin.invariants.check import StepView

LEAST = 16
"""Tokens whose log-prob has moved since the first iteration, at least."""


class OldLogprobs:
    """Keeps the log-probs of a step's first reading of its rows."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[MicroBatch, Tensor]] = {}

    def begin(self) -> None:
        """Forget the step before."""
        self._first = {}

    def wrong(self, view: StepView) -> str:
        """Return what is wrong with the old log-probs of an update; empty if nothing is."""
        verdicts = []
        for number, seen in enumerate(view.seen):
            logp_BT, mask_BT = seen.batch.logp_BT, seen.batch.mask_BT
            if view.first_pass:
                self._first[id(seen.micro_batch)] = seen.micro_batch, logp_BT.detach()
                continue
            known = self._first.get(id(seen.micro_batch))
            needed = any(loss.traits.needs_old for loss, _, _ in seen.losses)
            if known is None or known[1].shape != logp_BT.shape or not needed:
                continue
            moved = (mask_BT & (known[1] != logp_BT)).sum()
            apart = (mask_BT & (seen.batch.old_logp_BT != logp_BT)).any()
            verdicts.append((number, (moved >= LEAST) & ~apart))
        if not verdicts:
            return ""
        own = torch.stack([verdict for _, verdict in verdicts]).tolist()  # one wait for the device
        for (number, _), is_own in zip(verdicts, own, strict=True):
            if is_own:
                return (
                    f"micro-batch {number + 1} of {len(view.seen)}: the old log-probs of rows that "
                    "the step reads again are the policy's own of now, to the last bit, so that "
                    "the ratio is 1 and nothing is clipped (band: none)"
                )
        return ""
