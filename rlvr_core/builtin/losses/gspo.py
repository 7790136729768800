"""GSPO: the ratio of whole completions instead of tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlvr_core.algorithm.policy import ClipConfig
from rlvr_core.builtin.losses.grpo import GRPO


class GSPO(GRPO):
    """Group sequence policy optimization, Zheng et al. 2025, arXiv:2507.18071.

    A completion is clipped as one, so the range is the paper's: far narrower than that of a token.
    """

    class Config(ClipConfig):
        """Options of GSPO."""

        ratio: Literal["token", "sequence"] = "sequence"
        """Each token has its own, or the geometric mean over its row."""
        clip_low: Annotated[float, Field(gt=0, le=1)] = 3e-4
        """The ratio counts down to ``1 - clip_low``."""
        clip_high: Annotated[float, Field(gt=0)] = 4e-4
        """The ratio counts up to ``1 + clip_high``."""
