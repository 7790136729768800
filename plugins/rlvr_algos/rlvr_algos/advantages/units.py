"""Units in which rewards of any finite size can be squared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SAFE_EXPONENT = 500


def unit_of(reward_n: NDArray[np.float64]) -> float:
    """Return a power of two, which rounds nothing: 1 unless squares of rewards could overflow."""
    largest = float(np.abs(reward_n).max(initial=0.0))
    return float(2.0 ** max(0, int(np.frexp(largest)[1]) - _SAFE_EXPONENT))
