"""The usual losses: GRPO, DAPO, Dr. GRPO, GSPO and SFT, each in one screen.

Each maps a micro-batch and the denominators of the whole optimizer step to a scalar: a surrogate
per token, ``corrected`` by importance weights and the KL to the reference, and a mean over it. The
importance weights, the KL, the entropy bonus and the metrics are the same for all, and stand in
``rlvr_core.algorithm.policy``; what is compared with what to get A, in ``rlvr_core.advantages``.

Notation: r = exp(logp - old_logp), the probability of a token now over that at the step's start;
A the advantage; |o| the length of a completion. Dimensions: B rows, T completion positions.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from rlvr_core.algorithm.policy import ClipConfig, PolicyLoss, PolicyTerms
from rlvr_core.algorithm.reduce import Tally, constant, row_mean, token_mean
from rlvr_core.api import (
    ComponentConfig,
    LossBatch,
    LossOutput,
    LossTraits,
    Metric,
    Normalizer,
)
from rlvr_core.api.traits import AnswersTraits


def clipped(policy: PolicyTerms, options: ClipConfig) -> Tensor:
    """PPO's surrogate per token, Schulman et al. 2017, arXiv:1707.06347, to be minimised.

    -min(min(r, delta) A, clip(r, 1 - clip_low, 1 + clip_high) A); the two sides of the range are
    apart as in Yu et al. 2025, arXiv:2503.14476, and ``delta`` bounds r where A is negative
    (Prime Intellect 2025, arXiv:2505.07291).
    """
    ratio_BT, advantage_BT = policy.ratio_BT, policy.advantage_BT
    low, high = 1 - options.clip_low, 1 + options.clip_high
    free_BT = ratio_BT if options.delta is None else ratio_BT.clamp(max=options.delta)
    below_BT = (advantage_BT < 0) & (ratio_BT < low)
    above_BT = (advantage_BT > 0) & (ratio_BT > high)
    policy.tally.mean("clip_fraction/low", below_BT.to(ratio_BT.dtype))
    policy.tally.mean("clip_fraction/high", above_BT.to(ratio_BT.dtype))
    return -torch.minimum(free_BT * advantage_BT, ratio_BT.clamp(low, high) * advantage_BT)


class GRPO(PolicyLoss):
    """Group relative policy optimization, Shao et al. 2024, arXiv:2402.03300, equation 3.

    loss = mean over completions of (1 / |o|) sum over tokens of
           -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) + beta KL(policy || reference)
    """

    class Config(ClipConfig):
        """Options of GRPO."""

    options: Config

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Every completion counts the same."""
        policy = self.terms(batch)
        loss_BT = policy.corrected(clipped(policy, self.options))
        return policy.output(row_mean(loss_BT, batch.mask_BT, normalizer), normalizer)


class DAPO(PolicyLoss):
    """Decoupled clip and token-level loss, Yu et al. 2025, arXiv:2503.14476, equation 8.

    loss = (1 / all loss tokens of the step) sum over completions and tokens of
           -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), with clip_high above clip_low
    """

    class Config(ClipConfig):
        """Options of DAPO."""

        clip_high: Annotated[float, Field(gt=0)] = 0.28
        """The ratio counts up to ``1 + clip_high``."""

    options: Config

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Every token counts the same."""
        policy = self.terms(batch)
        loss_BT = policy.corrected(clipped(policy, self.options))
        return policy.output(token_mean(loss_BT, batch.mask_BT, normalizer), normalizer)


class DrGRPO(PolicyLoss):
    """GRPO without its length and difficulty bias, Liu et al. 2025, arXiv:2503.20783, section 3.2.

    loss = mean over completions of (1 / constant) sum over tokens of
           -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), with A = R - mean of the group

    Its gradients are smaller than GRPO's by about mean length / ``constant`` and by the rewards'
    spread, so a learning rate that suits GRPO is too low here.
    """

    advantage = "center"

    class Config(ClipConfig):
        """Options of Dr. GRPO."""

        constant: Annotated[int, Field(gt=0)] | None = None
        """Tokens every completion's sum is divided by; null takes the run's cap on completions."""

    options: Config

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """A token counts the same in a short and in a long completion."""
        policy = self.terms(batch)
        loss_BT = policy.corrected(clipped(policy, self.options))
        loss = constant(loss_BT, batch.mask_BT, normalizer, self.options.constant)
        return policy.output(loss, normalizer)


class GSPO(GRPO):
    """Group sequence policy optimization, Zheng et al. 2025, arXiv:2507.18071, equation 5.

    loss = mean over completions of -min(s A, clip(s, 1 - clip_low, 1 + clip_high) A)
    s    = exp((1 / |o|) sum over tokens of (logp - old_logp)), the ratio of the whole completion

    GRPO with the ratio of the whole completion, which is the same for each of its tokens. The range
    is the paper's: far narrower than that of a token.
    """

    class Config(GRPO.Config):
        """Options of GSPO."""

        ratio: Literal["token", "sequence"] = "sequence"
        """Each token has its own, or the geometric mean over its row."""
        clip_low: Annotated[float, Field(gt=0, le=1)] = 3e-4
        """The ratio counts down to ``1 - clip_low``."""
        clip_high: Annotated[float, Field(gt=0)] = 4e-4
        """The ratio counts up to ``1 + clip_high``."""


class SFT:
    """Supervised fine-tuning on given answers: loss = mean over their tokens of -logp.

    Log-probs are those of temperature 1, whatever the run samples at.
    """

    reports = (Metric("sft/nll", "Mean minus log-prob of the given answers' tokens.", "nats"),)

    class Config(ComponentConfig):
        """Options of SFT."""

        target: str | None = None
        """Field of a problem's spec that holds the answer to imitate; null takes the answers that
        the data set itself demonstrates."""
        rows_per_step: Annotated[int, Field(gt=0)] = 64
        """Answers of one optimizer step."""

    def __init__(self, config: Config) -> None:
        self.traits = LossTraits(answers=AnswersTraits(config.rows_per_step, config.target))

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Every answer token of the step counts the same."""
        nll_BT = -batch.logp_BT
        tally = Tally(batch.mask_BT)
        tally.mean("sft/nll", nll_BT)
        loss = token_mean(nll_BT, batch.mask_BT, normalizer)
        return LossOutput(loss, tally.sums, tally.maxima)
