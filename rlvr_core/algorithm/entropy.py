"""Which tokens are the most uncertain ones of an optimizer step."""

from __future__ import annotations

import numpy as np
from torch import Tensor

TIE = 1e-5
"""Nats below the threshold at which a token still ties with it. Rows of one prompt begin in the
same distribution, and whether their entropies come out equal to the last bit is chance."""


def entropy_threshold(entropy_N: Tensor, share: float) -> float:
    """Least entropy of the ``share`` of tokens that have most, Wang et al. 2025, arXiv:2506.01939.

    The quantile at 1 - share, linear between neighbours; tokens are chosen from it upwards.

    Args:
        entropy_N: Entropies of all loss tokens of the optimizer step, all ranks; at least one.
        share: In (0, 1].
    """
    # torch.quantile refuses more than 2^24 values, fewer than a step may have
    return float(np.quantile(entropy_N.double().cpu().numpy(), 1 - share))
