"""The group-relative advantage estimators: each compares a completion with its problem's others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from rlvr_core.algorithm.estimate import refuse_infinite
from rlvr_core.api import AdvantageOutput, AdvantageTraits, ComponentConfig, JudgedStep


@dataclass(frozen=True, slots=True)
class Compared:
    """N rewards, each beside those of its group; only scorable ones count.

    Attributes:
        reward_N: The rewards; NaN where there is none.
        scorable_N: False where it is NaN.
        count_N: Scorable members of the group.
        centred_N: Reward minus the group's mean.
        summed: Function from values (N,) to the sums over the scorable members of their groups.
    """

    reward_N: Tensor
    scorable_N: Tensor
    count_N: Tensor
    centred_N: Tensor
    summed: Callable[[Tensor], Tensor]

    def std(self, ddof: int) -> Tensor:
        """Standard deviation of the group."""
        return (self.summed(self.centred_N.square()) / (self.count_N - ddof).clamp(min=1)).sqrt()


Formula = Callable[[Compared], Tensor]


class GroupRelativeConfig(ComponentConfig):
    """Options of every estimator that compares within groups."""

    combine: Literal["sum_then_normalise", "normalise_then_sum"] = "sum_then_normalise"
    """With several rewards: advantages of their weighted sum, or the weighted sum of each one's
    advantages, scaled to deviation 1 over the step (GDPO, arXiv:2601.05242)."""


class GroupRelative(ABC):
    """One advantage a completion; 0 in a group with fewer than two rewards."""

    traits = AdvantageTraits()
    Config = GroupRelativeConfig

    def __init__(self, config: GroupRelativeConfig) -> None:
        self._combine = config.combine

    @staticmethod
    @abstractmethod
    def formula(c: Compared) -> Tensor:
        """Return the advantages (N,); those of groups with fewer than two rewards are not used."""

    def __call__(self, step: JudgedStep) -> AdvantageOutput:
        """Apply ``formula``, see ``advantages``."""
        group_N = torch.from_numpy(step.group_N)
        if self._combine == "sum_then_normalise":
            result = advantages(torch.from_numpy(step.reward_N), group_N, self.formula)
        else:
            score_NK = torch.from_numpy(step.score_NK)
            result = normalise_then_sum(score_NK, step.weights, group_N, self.formula)
        return AdvantageOutput(result.advantage_N.numpy())


# -- the formulas ---------------------------------------------------------------------------------


class Group(GroupRelative):
    """GRPO, Shao et al. 2024, arXiv:2402.03300: (R - mean) / max(std, 1e-6), population std."""

    @staticmethod
    def formula(c: Compared) -> Tensor:  # noqa: D102
        return c.centred_N / c.std(0).clamp(min=1e-6)


class Center(GroupRelative):
    """Dr. GRPO, Liu et al. 2025, arXiv:2503.20783: R - mean."""

    @staticmethod
    def formula(c: Compared) -> Tensor:  # noqa: D102
        return c.centred_N


class Batch(GroupRelative):
    """(R - mean of the group) / (population std of all rewards of the step + 1e-4)."""

    @staticmethod
    def formula(c: Compared) -> Tensor:  # noqa: D102
        known_N = c.reward_N[c.scorable_N]
        std = (known_N - known_N.mean()).square().mean().sqrt()
        return c.centred_N / (std + 1e-4)


class Rloo(GroupRelative):
    """Ahmadian et al. 2024, arXiv:2402.14740: R - mean of the others in the group."""

    @staticmethod
    def formula(c: Compared) -> Tensor:  # noqa: D102
        return c.centred_N * (c.count_N / (c.count_N - 1))


class GroupStdDdof1(GroupRelative):
    """TRL's formula: (R - mean) / (std + 1e-4), std with Bessel's correction (ddof 1)."""

    @staticmethod
    def formula(c: Compared) -> Tensor:  # noqa: D102
        return c.centred_N / (c.std(1) + 1e-4)


# -- applying them --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AdvantageResult:
    """Advantages of N completions.

    Attributes:
        advantage_N: float64; 0 where there is none to speak of.
        scorable_N: False where the reward was NaN: such a completion must not enter the loss.
        lone_N: True in groups with fewer than two scorable members; all their advantages are 0.
    """

    advantage_N: Tensor
    scorable_N: Tensor
    lone_N: Tensor


def advantages(rewards_N: Tensor, group_N: Tensor, formula: Formula) -> AdvantageResult:
    """Compare each completion with the others of its problem.

    Args:
        rewards_N: Rewards of the whole optimizer step, all ranks; NaN where unscorable.
        group_N: Integer group of each, in any order, not necessarily contiguous.
        formula: One of the formulas above.

    Raises:
        ValueError: If the shapes differ.
        RunError: If a reward is infinite, or larger than 1e100.
    """
    reward_N = torch.as_tensor(rewards_N, dtype=torch.float64)
    group_N = torch.as_tensor(group_N, device=reward_N.device)
    if reward_N.ndim != 1 or reward_N.shape != group_N.shape:
        raise ValueError(
            f"rewards {tuple(reward_N.shape)} and groups {tuple(group_N.shape)} differ"
        )
    refuse_infinite(reward_N.tolist())
    compared = _compare(reward_N, group_N)
    lone_N = compared.count_N < 2
    advantage_N = torch.where(compared.scorable_N & ~lone_N, formula(compared), 0.0)
    return AdvantageResult(advantage_N, compared.scorable_N, lone_N)


def _compare(reward_N: Tensor, group_N: Tensor) -> Compared:
    scorable_N = ~reward_N.isnan()
    groups_G, index_N = torch.unique(group_N, return_inverse=True)
    zero_G = reward_N.new_zeros(len(groups_G))

    def summed(value_N: Tensor) -> Tensor:
        return zero_G.index_add(0, index_N, torch.where(scorable_N, value_N, 0.0))[index_N]

    # measured from the group's least reward, so that equal rewards give exactly 0 at any size
    least_G = (zero_G + torch.inf).scatter_reduce(
        0, index_N, torch.where(scorable_N, reward_N, torch.inf), "amin"
    )
    shifted_N = reward_N - least_G[index_N]
    count_N = summed(torch.ones_like(reward_N))
    centred_N = shifted_N - summed(shifted_N) / count_N
    return Compared(reward_N, scorable_N, count_N, centred_N, summed)


def normalise_then_sum(
    scores_NK: Tensor, weights: Sequence[float], group_N: Tensor, formula: Formula
) -> AdvantageResult:
    """Advantages of each reward by itself, then their weighted sum at deviation 1 over the step.

    So a reward's say depends on its weight alone, not on how widely its scores spread, Liu et al.
    2026 (GDPO), arXiv:2601.05242. The sum is centred and divided by (its standard deviation over
    the step + 1e-4), with Bessel's correction for ``GroupStdDdof1``.

    Args:
        scores_NK: Scores of the whole optimizer step, all ranks; NaN where there is none. A
            completion that lacks one with a weight is unscorable.
        weights: One per reward.
        group_N: Integer group of each completion.
        formula: How each reward becomes advantages.

    Raises:
        ValueError: If the shapes differ.
        RunError: If a score is infinite.
    """
    scores_NK = torch.as_tensor(scores_NK, dtype=torch.float64)
    weighed = [k for k, weight in enumerate(weights) if weight != 0]
    missing_N = scores_NK[:, weighed].isnan().any(dim=1)
    scores_NK = scores_NK.masked_fill(missing_N[:, None], torch.nan)
    total_N = torch.zeros_like(scores_NK[:, 0])
    for k in weighed:
        total_N += weights[k] * advantages(scores_NK[:, k], group_N, formula).advantage_N
    # the sums themselves, centred already: what is scorable, and which groups are too small
    result = advantages(total_N.masked_fill(missing_N, torch.nan), group_N, Center.formula)
    whole_N = total_N.masked_fill(result.lone_N | ~result.scorable_N, torch.nan)
    over = formula if formula is GroupStdDdof1.formula else Batch.formula
    return replace(result, advantage_N=advantages(whole_N, 0 * group_N, over).advantage_N)
