"""DAPO: a wider range above 1, every token counts the same, no KL."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from rlvr_core.algorithm.policy import ClipConfig, ClippedPolicyLoss
from rlvr_core.algorithm.reduce import token_mean
from rlvr_core.api.protocols import Normalizer


class DAPO(ClippedPolicyLoss):
    """Decoupled clip, token-level loss, Yu et al. 2025, arXiv:2503.14476."""

    class Config(ClipConfig):
        """Options of DAPO."""

        clip_high: Annotated[float, Field(gt=0)] = 0.28
        """The ratio counts up to ``1 + clip_high``."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)

    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """Mean over all loss tokens of the step."""
        return token_mean(loss_BT, mask_BT, normalizer)
