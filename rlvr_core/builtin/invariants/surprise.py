"""Whether tokens of evaluations are as surprising as their distributions say.

It is what ``calibration`` asks of the tokens of training, for engines that draw in a way of their
own, so that the numbers of a seed's stream say nothing of their tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.builtin.invariants.calibration import (
    COLD,
    DEPTH_ODDS,
    HOT,
    LEAST_MEAN,
    ODDS,
    depths_of,
    evidence_of,
)
from rlvr_core.builtin.invariants.moments import slack_of_shares
from rlvr_core.builtin.invariants.uniform import Depths

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Json


class Surprise:
    """Counts the tokens of evaluations at one temperature.

    Args:
        dtype: Compute precision.
        temperature: Of sampling.
        truncated: Whether sampling has top-k or top-p.
    """

    def __init__(self, dtype: torch.dtype, temperature: float, *, truncated: bool) -> None:
        self._tokens, self._sum, self._variance, self._times = 0, 0.0, 0.0, 0
        self._depths = Depths()
        # rounding decides which tokens a truncation keeps: no depth is sure
        self._slack = None if truncated else slack_of_shares(dtype, temperature)

    def wrong(self, scores_NK: Tensor) -> tuple[str, str] | None:
        """Count tokens by their ``token_moments``; return what is wrong, with a remedy."""
        logp_N, entropy_N, variance_N = scores_NK[:, :3].unbind(1)
        excess_N = -logp_N - entropy_N
        self._tokens += len(excess_N)
        self._sum += float(excess_N.sum())
        self._variance += float((excess_N.square() + 2 * variance_N).sum()) / 3
        if self._slack is not None:
            self._depths.add(*depths_of(scores_NK, self._times), self._slack)
        self._times += 1
        mean = self._sum / max(1, self._tokens)
        if evidence_of(self._sum, self._variance) >= -math.log(ODDS) and abs(mean) >= LEAST_MEAN:
            return (
                f"sampled tokens are {'less' if mean < 0 else 'more'} surprising than their "
                f"distribution says, by {abs(mean):.3g} nats a token ({self._tokens} tokens, z = "
                f"{self._sum / math.sqrt(self._variance):+.1f}; a healthy run exceeds this with "
                f"odds of {ODDS:g})",
                COLD if mean < 0 else HOT,
            )
        if self._depths.evidence() < -math.log(DEPTH_ODDS):
            return None
        where, few, counts = self._depths.worst()
        return (
            f"of {where} of completions {'fewer' if few else 'more'} are unlikely ones than their "
            f"distributions say: {counts} (a healthy run is as far off with odds of "
            f"{DEPTH_ODDS:g})",
            COLD if few else HOT,
        )

    def state_dict(self) -> dict[str, Json]:
        """Return the sums."""
        sums: list[Json] = [self._tokens, self._sum, self._variance, self._times]
        return {"sums": sums, "depths": self._depths.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        self._tokens, self._sum, self._variance, self._times = state["sums"]
        self._depths.load_state_dict(state["depths"])
