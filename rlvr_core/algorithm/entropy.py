"""The tokens of highest entropy in an update, and the control of the entropy bonus."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from rlvr_core.api.traits import EntropyTraits

TIE = 1e-5
"""Nats below the threshold at which a token still ties with it. Rows of one prompt begin in the
same distribution, and whether their entropies come out equal to the last bit is chance."""


def entropy_threshold(entropy_N: Tensor, share: float) -> float:
    """Return the entropy above which the ``share`` of most uncertain tokens lies.

    Wang et al. 2025, arXiv:2506.01939. It is the quantile at 1 - share, linear between neighbours;
    tokens are chosen from it upwards.

    Args:
        entropy_N: Entropies of all loss tokens of the optimizer step, all ranks; at least one.
        share: In (0, 1].
    """
    # torch.quantile refuses more than 2^24 values, fewer than a step may have
    return float(np.quantile(entropy_N.double().cpu().numpy(), 1 - share))


@dataclass(slots=True)
class EntropyController:
    """An integral controller of one loss's entropy bonus.

    Attributes:
        control: How it moves.
        coefficient: The weight of the next update's bonus, where that is applied.
        entropy: Mean entropy of the last update, in nats; None before the first.
    """

    control: EntropyTraits
    coefficient: float
    entropy: float | None = None

    @property
    def bonus(self) -> float:
        """The weight that the next update applies: none before an entropy is known."""
        low = self.entropy is not None and self.entropy <= self.control.target
        return self.coefficient if low else 0.0

    def observe(self, entropy: float) -> None:
        """Adjust the weight after an update.

        Args:
            entropy: Mean over all its loss tokens, in nats; one that is not finite says nothing.
        """
        if not math.isfinite(entropy):
            return
        if entropy <= self.control.target:
            self.coefficient = min(self.coefficient + self.control.step, self.control.max)
        else:
            self.coefficient = max(self.coefficient - self.control.step, self.control.min)
        self.entropy = entropy

    def state_dict(self) -> dict[str, float | None]:
        """Return coefficient and entropy, for a checkpoint."""
        return {"coefficient": self.coefficient, "entropy": self.entropy}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.coefficient, self.entropy = state["coefficient"], state["entropy"]
