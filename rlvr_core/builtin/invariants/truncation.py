"""Sampled tokens that top-k or top-p leaves out by more than rounding can explain.

Trainer and engine round differently, so a token at the edge may be kept by one alone. One far
beyond it is no sample of the truncated distribution, however rarely it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rlvr_core.builtin.invariants.moments import EXCESS, GAP

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api.services import RunConfig

NATS = {torch.float32: 0.02, torch.float16: 0.1, torch.bfloat16: 0.5}
"""By how much two passes may differ over how far two tokens are apart, at a temperature of 1."""

MASS = {torch.float32: 0.005, torch.float16: 0.02, torch.bfloat16: 0.05}
"""By how much they may differ over the mass of the likeliest tokens."""

LEAST = 3
"""So many tokens are no accident."""

SHARE = 5e-4
"""Nor is this share of all."""


class LeftOut:
    """Counts sampled tokens that the truncation leaves out.

    Args:
        config: The run's configuration.
        compute: Precision of the trainer's forward pass.
    """

    def __init__(self, config: RunConfig, compute: torch.dtype) -> None:
        sampling, parity = config.sampling, config.guards.parity
        self._top_k, self._top_p = sampling.top_k, sampling.top_p
        cool = 1 / min(1.0, sampling.temperature)
        # whoever accepts a larger difference of log-probs accepts it here
        accepted = (parity.max or 0.0) if parity is not False else 0.0
        self._nats = max(NATS[compute] * cool, accepted)
        self._mass = max(MASS[compute] * cool, accepted / 4)
        self._tokens = self._by_k = self._by_p = 0

    def wrong(self, scores_NK: Tensor) -> str:
        """Count the tokens of a step; return what is wrong, empty if nothing is."""
        gap_N, excess_N = scores_NK[:, GAP], scores_NK[:, EXCESS]
        self._tokens += len(gap_N)
        self._by_k += int((gap_N > self._nats).sum())
        self._by_p += int(((excess_N > self._mass) & (gap_N <= 0)).sum())
        for count, what in (
            (self._by_k, f"top_k {self._top_k} leaves out, {self._nats:g} nats or more below it"),
            (self._by_p, f"top_p {self._top_p:g} leaves out, a mass of {self._mass:g} beyond it"),
        ):
            if count >= LEAST and count > SHARE * self._tokens:
                return f"{count} of {self._tokens} sampled tokens are ones that {what}"
        return ""
