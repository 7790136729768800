"""AdamW as torch has it, fused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rlvr_core.api import ComponentConfig, OptimizerTraits

if TYPE_CHECKING:
    import torch

    from rlvr_core.api import TrainedParameter

Beta = Annotated[float, Field(ge=0.0, lt=1.0)]


class AdamWConfig(ComponentConfig):
    """Options of every AdamW."""

    betas: tuple[Beta, Beta] = (0.9, 0.999)
    """Decay rates of the mean of the gradient and of its square."""
    eps: Annotated[float, Field(gt=0)] = 1e-5
    """Added to the denominator; 1e-8 and less has diverged in half precision (T4)."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay, times the learning rate."""


class AdamW:
    """Adam with decoupled weight decay, Loshchilov and Hutter, arXiv:1711.05101."""

    Config = AdamWConfig
    traits = OptimizerTraits(elementwise=True)

    def __init__(self, config: AdamWConfig) -> None:
        self.config = config

    def build(self, parameters: Sequence[TrainedParameter], lr: float) -> torch.optim.Optimizer:
        """See ``OptimizerBuilder``."""
        import torch

        return torch.optim.AdamW(
            [parameter.tensor for parameter in parameters],
            lr=lr,
            betas=self.config.betas,
            eps=self.config.eps,
            weight_decay=self.config.weight_decay,
            fused=True,
        )
