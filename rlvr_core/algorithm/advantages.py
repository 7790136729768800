"""The group-relative estimators: each compares a completion with the others of its problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from rlvr_core.api import AdvantageOutput, AdvantageTraits, ComponentConfig, JudgedStep, RunError

AdvantageMode = Literal["group", "center", "batch", "rloo", "group_std_ddof1"]
_MIN_STD = 1e-6
_STD_SHIFT = 1e-4
_SAFE_EXPONENT = 500


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

    With mean and standard deviation over the scorable members of the group (population standard
    deviation unless said otherwise):

    - ``group``: (R - mean) / max(std, 1e-6), Shao et al. 2024, arXiv:2402.03300.
    - ``center``: R - mean, Liu et al. 2025, arXiv:2503.20783.
    - ``batch``: (R - mean) / (std of all scorable rewards given + 1e-4).
    - ``rloo``: R - mean of the others, Ahmadian et al. 2024, arXiv:2402.14740.
    - ``group_std_ddof1``: (R - mean) / (std + 1e-4), std with Bessel's correction, TRL's formula.

    Args:
        rewards_N: Rewards of the whole optimizer step, all ranks; NaN where unscorable.
        group_N: Integer group of each, in any order, not necessarily contiguous.
        mode: One of the above.

    Raises:
        ValueError: If the mode is unknown or the shapes differ.
        RunError: If a reward is infinite.
    """
    if mode not in get_args(AdvantageMode):
        raise ValueError(f"unknown advantage mode {mode!r}: one of {get_args(AdvantageMode)}")
    R_N = torch.as_tensor(rewards_N, dtype=torch.float64)
    group_N = torch.as_tensor(group_N, device=R_N.device)
    if R_N.ndim != 1 or R_N.shape != group_N.shape:
        raise ValueError(f"rewards {tuple(R_N.shape)} and groups {tuple(group_N.shape)} differ")
    infinite = R_N.isinf().nonzero().flatten().tolist()
    if infinite:
        raise RunError(
            f"infinite reward of completions {infinite[:8]} of the step",
            remedy="a reward must be a finite number; a verifier that cannot score an answer "
            "returns score None",
        )

    scorable_N = ~R_N.isnan()
    groups_G, index_N = torch.unique(group_N, return_inverse=True)

    def group_sum(value_N: Tensor) -> Tensor:
        value_N = torch.where(scorable_N, value_N, 0.0)
        return torch.zeros(len(groups_G), dtype=R_N.dtype, device=R_N.device).index_add_(
            0, index_N, value_N
        )

    count_G = group_sum(torch.ones_like(R_N))
    # Measured from a member of the group, so that equal rewards give exactly 0 at any size.
    origin_G = torch.full_like(count_G, torch.inf).scatter_reduce_(
        0, index_N, torch.where(scorable_N, R_N, torch.inf), "amin"
    )
    # In units of a power of two, which rounds nothing: 1 unless squares or differences overflow.
    exponent_G = torch.zeros_like(count_G).scatter_reduce_(
        0, index_N, torch.frexp(R_N.nan_to_num()).exponent.to(R_N.dtype), "amax"
    )
    unit_N = (exponent_G - _SAFE_EXPONENT).clamp(min=0).exp2()[index_N]
    shifted_N = R_N / unit_N - origin_G[index_N] / unit_N
    centred_N = shifted_N - (group_sum(shifted_N) / count_G)[index_N]

    def group_std(ddof: int) -> Tensor:
        variance_G = group_sum(centred_N.square()) / (count_G - ddof).clamp(min=1)
        return variance_G.sqrt()[index_N]

    if mode == "group":
        result_N = centred_N / torch.maximum(group_std(0), _MIN_STD / unit_N)
    elif mode == "batch":
        unit = unit_N[scorable_N].amax() if scorable_N.any() else 1.0
        known_N = R_N[scorable_N] / unit
        std = (known_N - known_N.mean()).square().mean().sqrt()
        result_N = centred_N * (unit_N / unit) / (std + _STD_SHIFT / unit)
    elif mode == "rloo":
        result_N = centred_N * (count_G / (count_G - 1))[index_N] * unit_N
    elif mode == "group_std_ddof1":
        result_N = centred_N / (group_std(1) + _STD_SHIFT / unit_N)
    else:
        result_N = centred_N * unit_N

    lone_N = (count_G < 2)[index_N]
    return AdvantageResult(
        advantage_N=torch.where(scorable_N & ~lone_N, result_N, 0.0).nan_to_num(nan=torch.nan),
        scorable_N=scorable_N,
        lone_N=lone_N,
    )


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
