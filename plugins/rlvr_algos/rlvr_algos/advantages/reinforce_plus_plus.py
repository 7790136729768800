"""REINFORCE++: no critic and no group baseline; rewards are normalised over the whole step."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from rlvr_algos.advantages.units import unit_of
from rlvr_core.api import AdvantageOutput, AdvantageTraits, ComponentConfig, JudgedStep, Metric

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
                one - self._config.beta * kl_T[::-1].cumsum()[::-1]
                for one, kl_T in zip(returns, step.kl_N, strict=True)
            ]
        known = [one[m] for one, m, ok in zip(returns, masks, scorable_N, strict=True) if ok]
        every = np.concatenate([np.zeros(0), *known])
        if len(every) == 0:
            return AdvantageOutput(returns)
        unit = unit_of(every)
        every /= unit
        mean, std = every.mean(), max(every.std(), np.sqrt(_MIN_VARIANCE) / unit)
        metrics = {"return_mean": float(mean) * unit, "return_std": float(std) * unit}
        return AdvantageOutput([(one / unit - mean) / std for one in returns], metrics)
