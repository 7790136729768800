"""REINFORCE: the plain policy gradient, old samples never weighted up."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlvr_core.algorithm.policy import RatioConfig
from rlvr_core.builtin.losses.cispo import CISPO


class REINFORCE(CISPO):
    """Williams 1992, with importance weights of at most ``cap`` where samples are not fresh."""

    class Config(RatioConfig):
        """Options of REINFORCE."""

        cap: Annotated[float, Field(gt=0)] = 1.0
        """Largest ratio that a token's gradient is multiplied by."""
