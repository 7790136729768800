"""The weight of the entropy bonus, steered by the entropy of the updates.

He et al. 2025 (Skywork-OR1), arXiv:2505.22312.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, model_validator

from rlvr_core.api import ComponentConfig, EntropyTraits

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class EntropyControl(ComponentConfig):
    """How ``entropy_bonus`` follows the entropy."""

    target: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Mean entropy of the loss tokens, in nats, that is to be kept: the bonus is applied while the
    update before was at it or below."""
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.005
    """What each update adds to the weight where its entropy is at the target or below, and takes
    from it where it is above."""
    min: Weight = 0.0
    """Least weight."""
    max: Weight = 1.0
    """Largest weight."""

    @model_validator(mode="after")
    def _range_is_one(self) -> EntropyControl:
        if self.min >= self.max:
            raise ValueError(f"min ({self.min}) must be below max ({self.max})")
        return self


@dataclass(slots=True)
class EntropyController:
    """An integral controller of one loss's entropy bonus.

    Attributes:
        control: How it moves.
        coefficient: The weight of the next update's bonus, where that is applied.
        entropy: Mean entropy of the last update, in nats; None before the first.
    """

    control: EntropyControl | EntropyTraits
    coefficient: float
    entropy: float | None = None

    @property
    def bonus(self) -> float:
        """The weight that the next update applies: none before an entropy is known."""
        low = self.entropy is not None and self.entropy <= self.control.target
        return self.coefficient if low else 0.0

    def observe(self, entropy: float) -> None:
        """Move the weight after an update.

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
        """For a checkpoint."""
        return {"coefficient": self.coefficient, "entropy": self.entropy}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict``."""
        self.coefficient, self.entropy = state["coefficient"], state["entropy"]
