"""Estimators for another aim than the mean reward: the likelihood of success, the best of k."""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rlvr_algos.advantages.units import unit_of
from rlvr_core.api import (
    AdvantageOutput,
    AdvantageTraits,
    ComponentConfig,
    JudgedStep,
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
        found_n = np.empty(n)
        found_n[order_n] = self._normal(sorted_n, k) if self._normalised else _marginal(sorted_n, k)
        return found_n

    def _normal(self, sorted_n: Rewards, k: int) -> Rewards:
        n = len(sorted_n)
        # share of subsets whose largest reward is at each place
        share_n = np.array([comb(j, k - 1) / comb(n, k) for j in range(n)])
        # measured from the least reward, so that equal rewards give exactly 0
        unit = unit_of(sorted_n)
        shifted_n = sorted_n / unit - sorted_n[0] / unit
        mean = float(share_n @ shifted_n)
        std = float(np.sqrt(share_n @ (shifted_n - mean) ** 2))
        if std < 1e-6 / unit:
            return np.zeros(n)
        return (_mean_with(shifted_n, k) - mean) / std


def _mean_with(sorted_n: Rewards, k: int) -> Rewards:
    """Mean of M(S) over the subsets of size k that contain each place of the sorted rewards."""
    n = len(sorted_n)
    found = [
        comb(i, k - 1) * sorted_n[i]
        + sum(comb(j - 1, k - 2) * sorted_n[j] for j in range(i + 1, n) if k > 1)
        for i in range(n)
    ]
    return np.array(found) / comb(n - 1, k - 1)


def _marginal(sorted_n: Rewards, k: int) -> Rewards:
    """K times the mean of M(S) - M(S without i); 0 for the empty set's M when k is 1."""
    n = len(sorted_n)
    found = [
        sum(comb(j, k - 2) * (sorted_n[i] - sorted_n[j]) for j in range(i))
        if k > 1
        else sorted_n[i]
        for i in range(n)
    ]
    return k * np.array(found) / comb(n - 1, k - 1)


def _by_group(step: JudgedStep, formula: Callable[[Rewards], Rewards]) -> Rewards:
    """The formula over each group's scorable rewards; 0 in a group with fewer than two."""
    found_N = np.zeros(len(step.reward_N))
    for place in range(len(step.groups)):
        places = np.flatnonzero((step.group_N == place) & step.scorable_N)
        if len(places) > 1:
            found_N[places] = formula(step.reward_N[places])
    return found_N
