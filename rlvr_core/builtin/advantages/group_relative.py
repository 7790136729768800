"""Estimators that compare a completion's reward with the others of its problem."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from rlvr_core.algorithm.advantages import AdvantageMode, advantages, normalise_then_sum
from rlvr_core.api.protocols import AdvantageOutput, ComponentConfig, JudgedStep
from rlvr_core.api.traits import AdvantageTraits


class GroupRelativeConfig(ComponentConfig):
    """Options of every estimator that compares within groups."""

    combine: Literal["sum_then_normalise", "normalise_then_sum"] = "sum_then_normalise"
    """With several rewards: advantages of their weighted sum, or the weighted sum of each one's
    advantages, scaled to deviation 1 over the step (GDPO, arXiv:2601.05242)."""


class GroupRelative:
    """One advantage a completion; 0 in a group with fewer than two rewards."""

    mode: ClassVar[AdvantageMode]
    traits = AdvantageTraits()
    Config = GroupRelativeConfig

    def __init__(self, config: GroupRelativeConfig) -> None:
        self._combine = config.combine

    def __call__(self, step: JudgedStep) -> AdvantageOutput:
        """The formula of ``mode``, see ``rlvr_core.algorithm.advantages``."""
        group_N = torch.from_numpy(step.group_N)
        if self._combine == "sum_then_normalise":
            result = advantages(torch.from_numpy(step.reward_N), group_N, self.mode)
        else:
            score_NK = torch.from_numpy(step.score_NK)
            result = normalise_then_sum(score_NK, step.weights, group_N, self.mode)
        return AdvantageOutput(result.advantage_N.numpy())


class Group(GroupRelative):
    """GRPO, Shao et al. 2024, arXiv:2402.03300: (R - mean) / max(std, 1e-6), population std."""

    mode = "group"


class Center(GroupRelative):
    """Dr. GRPO, Liu et al. 2025, arXiv:2503.20783: R - mean."""

    mode = "center"


class Batch(GroupRelative):
    """(R - mean of the group) / (population std of all rewards of the step + 1e-4)."""

    mode = "batch"


class Rloo(GroupRelative):
    """Ahmadian et al. 2024, arXiv:2402.14740: R - mean of the others in the group."""

    mode = "rloo"


class GroupStdDdof1(GroupRelative):
    """TRL's formula: (R - mean) / (std + 1e-4), std with Bessel's correction (ddof 1)."""

    mode = "group_std_ddof1"
