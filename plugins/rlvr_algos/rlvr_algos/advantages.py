"""Advantage estimators beyond the group-relative ones of ``rlvr_core.advantages``."""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rlvr_core.api import (
    AdvantageOutput,
    AdvantageTraits,
    ComponentConfig,
    JudgedStep,
    Metric,
    NoConfig,
    RunError,
)

Rewards = NDArray[np.float64]


class MaxRL:
    """Maximum likelihood RL, Tajwar et al. 2026, arXiv:2602.02710: A = (R - mean) / mean.

    With rewards of 0 and 1, n completions of a problem and success probability p, the expected
    policy gradient is that of -sum over k = 1 .. n - 1 of (1 - p)^k / k, the expansion of log p up
    to order n - 1: the rarer a success, the more it weighs. A group without a success has
    advantage 0.
    """

    traits = AdvantageTraits()
    Config = NoConfig

    def __init__(self, config: NoConfig) -> None:
        pass

    def __call__(self, step: JudgedStep) -> AdvantageOutput:
        """One advantage a completion.

        Raises:
            RunError: If a reward is negative.
        """
        negative = np.flatnonzero(step.reward_N < 0)
        if len(negative):
            problem = step.groups[step.group_N[negative[0]]].problem
            raise RunError(
                f"maxrl: problem {problem.id} has a completion with reward "
                f"{step.reward_N[negative[0]]}, and a likelihood needs rewards of at least 0",
                remedy="leave penalties out of rewards, or choose another advantage estimator",
            )
        return AdvantageOutput(_by_group(step, _over_mean))


def _over_mean(reward_n: Rewards) -> Rewards:
    mean = reward_n.mean()
    return (reward_n - mean) / mean if mean > 0 else np.zeros_like(reward_n)


class PassAtK:
    """Maximises the expected best reward of k completions, for binary rewards pass@k.

    Over all subsets S of size k of a problem's n completions, M(S) being its largest reward:

    - ``normalised``, Chen et al. 2025, arXiv:2508.10751: (mean of M(S) over the S that contain i,
      minus the mean of M over all S) / population std of M over all S; 0 where that std is below
      1e-6. For binary rewards it is the paper's closed form.
    - ``unbiased``, Walder and Karkhanis 2025, arXiv:2505.15201 (its leave-one-out-minus-one
      baseline): k times the mean over the S that contain i of M(S) - M(S without i). The mean over
      completions of A times the gradient of log p is then an unbiased estimate of the gradient of
      the expected best of k.

    A group with fewer rewards than k has advantage 0. Both are computed from the sorted rewards.
    """

    class Config(ComponentConfig):
        """Options of pass@k."""

        k: Annotated[int, Field(ge=1)] = 4
        """Completions of which the best counts."""
        form: Literal["normalised", "unbiased"] = "normalised"
        """Scaled by the deviation between subsets, or an unbiased gradient."""

    def __init__(self, config: Config) -> None:
        self._k = config.k
        self._normalised = config.form == "normalised"
        # with n = k there is one subset, and nothing to compare it with
        least = config.k + 1 if self._normalised else config.k
        self.traits = AdvantageTraits(min_completions=max(2, least))

    def __call__(self, step: JudgedStep) -> AdvantageOutput:
        """One advantage a completion."""
        return AdvantageOutput(_by_group(step, self._of_group))

    def _of_group(self, reward_n: Rewards) -> Rewards:
        n, k = len(reward_n), self._k
        if n < k:
            return np.zeros(n)
        order_n = np.argsort(reward_n, kind="stable")
        sorted_n = reward_n[order_n]
        advantage_n = np.empty(n)
        of_sorted = self._normal if self._normalised else _marginal
        advantage_n[order_n] = of_sorted(sorted_n, k)
        return advantage_n

    def _normal(self, sorted_n: Rewards, k: int) -> Rewards:
        n = len(sorted_n)
        # share of subsets whose largest reward is at each place
        share_n = np.array([comb(j, k - 1) / comb(n, k) for j in range(n)])
        # measured from the least reward, so that equal rewards give exactly 0
        shifted_n = sorted_n - sorted_n[0]
        mean = float(share_n @ shifted_n)
        std = float(np.sqrt(share_n @ (shifted_n - mean) ** 2))
        if std < 1e-6:
            return np.zeros(n)
        return (_mean_with(shifted_n, k) - mean) / std


def _mean_with(sorted_n: Rewards, k: int) -> Rewards:
    """Mean of M(S) over the subsets of size k that contain each place of the sorted rewards."""
    n = len(sorted_n)
    totals = [
        comb(i, k - 1) * sorted_n[i]
        + sum(comb(j - 1, k - 2) * sorted_n[j] for j in range(i + 1, n) if k > 1)
        for i in range(n)
    ]
    return np.array(totals) / comb(n - 1, k - 1)


def _marginal(sorted_n: Rewards, k: int) -> Rewards:
    """K times the mean of M(S) - M(S without i); 0 for the empty set's M when k is 1."""
    n = len(sorted_n)
    totals = [
        sum(comb(j, k - 2) * (sorted_n[i] - sorted_n[j]) for j in range(i))
        if k > 1
        else sorted_n[i]
        for i in range(n)
    ]
    return k * np.array(totals) / comb(n - 1, k - 1)


def _by_group(step: JudgedStep, formula: Callable[[Rewards], Rewards]) -> Rewards:
    """The formula over each group's scorable rewards; 0 in a group with fewer than two."""
    advantage_N = np.zeros(len(step.reward_N))
    for place in range(len(step.groups)):
        places = np.flatnonzero((step.group_N == place) & step.scorable_N)
        if len(places) > 1:
            advantage_N[places] = formula(step.reward_N[places])
    return advantage_N


_MIN_VARIANCE = 1e-8


class ReinforcePlusPlus:
    """Hu et al. 2025, arXiv:2501.03262, with the KL to the reference in the reward.

    With R the reward of a completion and kl_s = log policy(s) - log reference(s) of its loss tokens
    at the step's start, the return of token t is

        G_t = R - mean_g - beta * sum of kl_s over s >= t

    (``mean_g``, the mean reward of the problem, only with ``group_baseline``, the paper's
    REINFORCE++-baseline). The advantage is (G_t - mean) / std with mean and variance (population,
    at least 1e-8) over all loss tokens of the step, completions without a reward left out. A long
    completion so weighs more in mean and variance than a short one.
    """

    reports = (
        Metric("advantage/return_mean", "Mean return of the step's tokens.", "reward"),
        Metric("advantage/return_std", "Standard deviation of them.", "reward"),
    )

    class Config(ComponentConfig):
        """Options of REINFORCE++."""

        beta: Annotated[float, Field(ge=0)] = 0.01
        """Weight of the KL to the reference in each token's reward; 0 needs no reference model."""
        group_baseline: bool = False
        """Subtract the mean reward of the problem first."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.traits = AdvantageTraits(
            per_token=True,
            needs_reference_kl=config.beta > 0,
            min_completions=2 if config.group_baseline else 1,
        )

    def __call__(self, step: JudgedStep) -> AdvantageOutput:
        """One advantage a token."""
        members, scorable_N = step.members, step.scorable_N
        reward_N = step.reward_N.copy()
        if self._config.group_baseline:
            for place in range(len(step.groups)):
                chosen_N = (step.group_N == place) & scorable_N
                if chosen_N.any():
                    reward_N[chosen_N] -= reward_N[chosen_N].mean()
        masks = [np.array(member.completion.loss_mask, dtype=bool) for member in members]
        returns = [np.full(len(mask), reward) for mask, reward in zip(masks, reward_N, strict=True)]
        if step.kl_N is not None:
            # the sum from each token to the last
            returns = [
                return_T - self._config.beta * kl_T[::-1].cumsum()[::-1]
                for return_T, kl_T in zip(returns, step.kl_N, strict=True)
            ]
        known = [
            return_T[mask_T]
            for return_T, mask_T, ok in zip(returns, masks, scorable_N, strict=True)
            if ok
        ]
        every = np.concatenate([np.zeros(0), *known])
        if len(every) == 0:
            return AdvantageOutput(returns)
        mean, std = every.mean(), max(every.std(), np.sqrt(_MIN_VARIANCE))
        metrics = {"return_mean": float(mean), "return_std": float(std)}
        return AdvantageOutput([(return_T - mean) / std for return_T in returns], metrics)
