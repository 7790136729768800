"""The group-relative advantage estimators: each compares a completion with its problem's others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rlvr_core.algorithm.estimate import refuse_infinite
from rlvr_core.api import AdvantageOutput, AdvantageTraits, ComponentConfig, JudgedStep

AdvantageMode = Literal["group", "center", "batch", "rloo", "group_std_ddof1"]


@dataclass(frozen=True, slots=True)
class Compared:
    """N rewards, each beside those of its group; only scorable ones count.

    Attributes:
        reward_N: The rewards; NaN where there is none.
        scorable_N: False where it is NaN.
        count_N: Scorable members of the group.
        centred_N: Reward minus the group's mean.
        summed: Sums a value over the scorable members of each group.
    """

    reward_N: Tensor
    scorable_N: Tensor
    count_N: Tensor
    centred_N: Tensor
    summed: Callable[[Tensor], Tensor]

    def std(self, ddof: int) -> Tensor:
        """Standard deviation of the group."""
        return (self.summed(self.centred_N.square()) / (self.count_N - ddof).clamp(min=1)).sqrt()


# -- the formulas ---------------------------------------------------------------------------------


def group(c: Compared) -> Tensor:
    """GRPO, Shao et al. 2024, arXiv:2402.03300: (R - mean) / max(std, 1e-6), population std."""
    return c.centred_N / c.std(0).clamp(min=1e-6)


def center(c: Compared) -> Tensor:
    """Dr. GRPO, Liu et al. 2025, arXiv:2503.20783: R - mean."""
    return c.centred_N


def batch(c: Compared) -> Tensor:
    """(R - mean of the group) / (population std of all rewards of the step + 1e-4)."""
    known_N = c.reward_N[c.scorable_N]
    std = (known_N - known_N.mean()).square().mean().sqrt()
    return c.centred_N / (std + 1e-4)


def rloo(c: Compared) -> Tensor:
    """Ahmadian et al. 2024, arXiv:2402.14740: R - mean of the others in the group."""
    return c.centred_N * (c.count_N / (c.count_N - 1))


def group_std_ddof1(c: Compared) -> Tensor:
    """TRL's formula: (R - mean) / (std + 1e-4), std with Bessel's correction (ddof 1)."""
    return c.centred_N / (c.std(1) + 1e-4)


_FORMULAS: dict[str, Callable[[Compared], Tensor]] = {
    "group": group,
    "center": center,
    "batch": batch,
    "rloo": rloo,
    "group_std_ddof1": group_std_ddof1,
}


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


def advantages(
    rewards_N: Tensor, group_N: Tensor, mode: AdvantageMode = "group"
) -> AdvantageResult:
    """Compare each completion with the others of its problem.

    Args:
        rewards_N: Rewards of the whole optimizer step, all ranks; NaN where unscorable.
        group_N: Integer group of each, in any order, not necessarily contiguous.
        mode: Name of one of the formulas above.

    Raises:
        ValueError: If the mode is unknown or the shapes differ.
        RunError: If a reward is infinite, or larger than 1e100.
    """
    if mode not in _FORMULAS:
        raise ValueError(f"unknown advantage mode {mode!r}: one of {', '.join(_FORMULAS)}")
    reward_N = torch.as_tensor(rewards_N, dtype=torch.float64)
    group_N = torch.as_tensor(group_N, device=reward_N.device)
    if reward_N.ndim != 1 or reward_N.shape != group_N.shape:
        raise ValueError(
            f"rewards {tuple(reward_N.shape)} and groups {tuple(group_N.shape)} differ"
        )
    refuse_infinite(reward_N.tolist())
    compared = _compare(reward_N, group_N)
    lone_N = compared.count_N < 2
    advantage_N = torch.where(compared.scorable_N & ~lone_N, _FORMULAS[mode](compared), 0.0)
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
    scores_NK: Tensor, weights: Sequence[float], group_N: Tensor, mode: AdvantageMode = "group"
) -> AdvantageResult:
    """Advantages of each reward by itself, then their weighted sum at deviation 1 over the step.

    So a reward's say depends on its weight alone, not on how widely its scores spread, Liu et al.
    2026 (GDPO), arXiv:2601.05242. The sum is centred and divided by (its standard deviation over
    the step + 1e-4), with Bessel's correction in the mode ``group_std_ddof1``.

    Args:
        scores_NK: Scores of the whole optimizer step, all ranks; NaN where there is none. A
            completion that lacks one with a weight is unscorable.
        weights: One per reward.
        group_N: Integer group of each completion.
        mode: How each reward becomes advantages.

    Raises:
        ValueError: If the mode is unknown or the shapes differ.
        RunError: If a score is infinite.
    """
    scores_NK = torch.as_tensor(scores_NK, dtype=torch.float64)
    weighed = [k for k, weight in enumerate(weights) if weight != 0]
    missing_N = scores_NK[:, weighed].isnan().any(dim=1)
    scores_NK = scores_NK.masked_fill(missing_N[:, None], torch.nan)
    total_N = torch.zeros_like(scores_NK[:, 0])
    for k in weighed:
        total_N += weights[k] * advantages(scores_NK[:, k], group_N, mode).advantage_N
    # the sums themselves, centred already: what is scorable, and which groups are too small
    result = advantages(total_N.masked_fill(missing_N, torch.nan), group_N, "center")
    whole_N = total_N.masked_fill(result.lone_N | ~result.scorable_N, torch.nan)
    over: AdvantageMode = mode if mode == "group_std_ddof1" else "batch"
    return replace(result, advantage_N=advantages(whole_N, 0 * group_N, over).advantage_N)


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
        """The formula of ``mode``, see ``advantages``."""
        group_N = torch.from_numpy(step.group_N)
        if self._combine == "sum_then_normalise":
            result = advantages(torch.from_numpy(step.reward_N), group_N, self.mode)
        else:
            score_NK = torch.from_numpy(step.score_NK)
            result = normalise_then_sum(score_NK, step.weights, group_N, self.mode)
        return AdvantageOutput(result.advantage_N.numpy())


class Group(GroupRelative):
    """See ``group``."""

    mode = "group"


class Center(GroupRelative):
    """See ``center``."""

    mode = "center"


class Batch(GroupRelative):
    """See ``batch``."""

    mode = "batch"


class Rloo(GroupRelative):
    """See ``rloo``."""

    mode = "rloo"


class GroupStdDdof1(GroupRelative):
    """See ``group_std_ddof1``."""

    mode = "group_std_ddof1"
