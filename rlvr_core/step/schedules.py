"""Schedules of the learning rate that go down from the peak to a share of it.

Progress goes from 0 at the end of the warm-up to 1 at the last step.
"""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from rlvr_core.api import ComponentConfig


class DecayConfig(ComponentConfig):
    """Options of a schedule that goes down."""

    min_lr_ratio: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Learning rate at the last step, as a share of the peak."""


class _Decay:
    Config: type[DecayConfig] = DecayConfig

    def __init__(self, config: DecayConfig) -> None:
        self._least = config.min_lr_ratio

    def _of(self, remaining: float) -> float:
        """The share of the peak, where ``remaining`` goes from 1 to 0."""
        return self._least + (1.0 - self._least) * remaining


class Linear(_Decay):
    """Down in a straight line."""

    def __call__(self, progress: float) -> float:
        """See ``Schedule``."""
        return self._of(1.0 - progress)


class Cosine(_Decay):
    """Down along half a cosine wave, Loshchilov and Hutter, arXiv:1608.03983."""

    def __call__(self, progress: float) -> float:
        """See ``Schedule``."""
        return self._of(0.5 * (1.0 + math.cos(math.pi * progress)))


class WSD(_Decay):
    """Warm-up, stable, decay: constant, then down in a straight line; Hu et al., arXiv:2404.06395.

    A checkpoint of the stable part can be gone on from with more steps.
    """

    class Config(DecayConfig):
        """Options of schedule ``wsd``."""

        decay: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2
        """Share of the steps after the warm-up in which the learning rate goes down."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._decay = config.decay

    def __call__(self, progress: float) -> float:
        """See ``Schedule``."""
        return self._of(min(1.0, (1.0 - progress) / self._decay))
