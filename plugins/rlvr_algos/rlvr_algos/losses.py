"""Further policy-gradient losses, each in one screen; the usual ones stand in ``rlvr_core.losses``.

| loss | surrogate | averaged over |
|---|---|---|
| luspo | PPO clip | rows, each the sum of its tokens |
| cispo | -min(r, 5) A logp, r without a gradient | all loss tokens of the step |
| reinforce | -min(r, 1) A logp, r without a gradient | all loss tokens of the step |
| sapo | -A (4 / tau) sigmoid(tau (r - 1)) | rows, each the mean of its tokens |
| gmpo | -A geometric mean of the row's clipped ratios | rows |
| vespo | -phi A logp, phi of the row's ratio without a gradient | all loss tokens of the step |

All have the advantage ``group`` by default. Notation and dimensions are those of
``rlvr_core.losses``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rlvr_core.algorithm.policy import ClipConfig, PolicyConfig, PolicyLoss, PolicyTerms
from rlvr_core.algorithm.ratio import exp_linear, row_mean_log_ratio
from rlvr_core.algorithm.reduce import row_mean, row_sum, token_mean
from rlvr_core.api import LossBatch, LossOutput, LossTraits, Metric, Normalizer
from rlvr_core.losses import clipped


class RatioConfig(PolicyConfig):
    """Options of losses made of the probability ratio."""

    ratio: Literal["token", "sequence"] = "token"
    """Each token has its own, or the geometric mean over its row."""


class LUSPO(PolicyLoss):
    """Length-unbiased sequence policy optimization, arXiv:2602.05261.

    The paper's setting is ``ratio: sequence``. Its gradients are larger than those of ``grpo`` by
    about the mean length, so a learning rate that suits one does not suit the other.
    """

    class Config(ClipConfig):
        """Options of LUSPO."""

    options: Config

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Mean over rows of the sum over tokens: long completions are not discounted."""
        policy = self.terms(batch)
        loss_BT = policy.corrected(clipped(policy, self.options))
        return policy.output(row_sum(loss_BT, batch.mask_BT, normalizer), normalizer)


class CISPO(PolicyLoss):
    """Clipped importance-sampling policy optimization, MiniMax 2025, arXiv:2506.13585.

    The ratio weighs a token's gradient and is bounded, but never ends it.
    """

    class Config(RatioConfig):
        """Options of CISPO."""

        cap: Annotated[float, Field(gt=0)] = 5.0
        """Largest ratio that a token's gradient is multiplied by."""

    options: Config

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Mean over all loss tokens of -min(r, cap) A logp, without a gradient through r."""
        policy = self.terms(batch)
        weight_BT = policy.ratio_BT.detach()
        policy.tally.mean("clip_fraction/high", (weight_BT > self.options.cap).to(weight_BT))
        surrogate_BT = -weight_BT.clamp(max=self.options.cap) * policy.advantage_BT * policy.logp_BT
        loss_BT = policy.corrected(surrogate_BT)
        return policy.output(token_mean(loss_BT, batch.mask_BT, normalizer), normalizer)


class REINFORCE(CISPO):
    """Williams 1992: the plain policy gradient, with a ratio of at most ``cap`` as a weight."""

    class Config(RatioConfig):
        """Options of REINFORCE."""

        cap: Annotated[float, Field(gt=0)] = 1.0
        """Largest ratio that a token's gradient is multiplied by."""


class SAPO(PolicyLoss):
    """Soft adaptive policy optimization, Gao et al. 2025, arXiv:2511.20347.

    A smooth gate on the ratio in the place of a hard clip.
    """

    reports = (
        Metric("gate/mean", "Mean slope of the gate: 1 at ratio 1, 0 where it is shut.", "share"),
    )

    class Config(RatioConfig):
        """Options of SAPO."""

        tau_pos: Annotated[float, Field(gt=0)] = 1.0
        """How fast the gate closes where the advantage is positive."""
        tau_neg: Annotated[float, Field(gt=0)] = 1.05
        """How fast the gate closes where it is not."""

    options: Config

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Mean over rows of the mean over tokens of -A (4 / tau) sigmoid(tau (r - 1)).

        Its gradient is that of -A r where r is 1.
        """
        policy = self.terms(batch)
        # float32 whatever the batch: with 1.05 unrounded, values leave TRL's by 5e-8
        tau_BT = torch.where(policy.advantage_BT > 0, self.options.tau_pos, self.options.tau_neg)
        open_BT = torch.sigmoid(tau_BT * (policy.ratio_BT - 1))
        policy.tally.mean("gate/mean", 4 * open_BT * (1 - open_BT))
        loss_BT = policy.corrected(-(open_BT * 4 / tau_BT) * policy.advantage_BT)
        return policy.output(row_mean(loss_BT, batch.mask_BT, normalizer), normalizer)


class RowLoss(PolicyLoss):
    """A loss that takes one advantage a row: an estimator with one a token is refused."""

    @property
    def traits(self) -> LossTraits:
        """Return the traits of any policy loss, without advantages per token."""
        return replace(super().traits, per_token_advantages=False)

    def row_advantage(self, policy: PolicyTerms) -> Tensor:
        """(B, 1) advantage of each row."""
        return policy.batch.advantage_B.to(policy.logp_BT.dtype)[:, None]


class GMPO(RowLoss):
    """Geometric-mean policy optimization, Zhao et al. 2025, arXiv:2507.20673.

    A single wild ratio moves a geometric mean little, so the range of each can be wide.
    """

    class Config(PolicyConfig):
        """Options of GMPO."""

        clip_low: Annotated[float, Field(gt=0)] = 0.4
        """A token's log-ratio counts down to ``-clip_low`` where the advantage is negative."""
        clip_high: Annotated[float, Field(gt=0)] = 0.4
        """A token's log-ratio counts up to ``clip_high`` where the advantage is positive."""

    options: Config

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Mean over rows of -A exp(mean of the clipped log-ratios), the same for every token."""
        policy = self.terms(batch)
        tally = policy.tally
        low, high = -self.options.clip_low, self.options.clip_high
        x_BT, advantage_B1 = policy.log_ratio_BT, self.row_advantage(policy)
        good_B1 = advantage_B1 > 0
        tally.mean("clip_fraction/low", ((advantage_B1 < 0) & (x_BT < low)).to(x_BT))
        tally.mean("clip_fraction/high", (good_B1 & (x_BT > high)).to(x_BT))
        clipped_BT = torch.where(good_B1, x_BT.clamp(max=high), x_BT.clamp(min=low))
        clipped_BT = torch.where(policy.entropy_mask_BT, clipped_BT, 0.0)
        mean_B1 = row_mean_log_ratio(clipped_BT, policy.entropy_mask_BT)
        # left-out tokens do not dilute a mean that was not taken over them
        chosen_B1 = policy.entropy_mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
        whole_B1 = policy.mask_BT.sum(dim=1, keepdim=True) / chosen_B1
        surrogate_BT = (-advantage_B1 * whole_B1 * exp_linear(mean_B1)).expand_as(x_BT)
        loss_BT = policy.corrected(surrogate_BT)
        return policy.output(row_mean(loss_BT, batch.mask_BT, normalizer), normalizer)


LOG_LEAST, LOG_MOST = math.log(1e-8), 20.0
"""Bounds of the logarithm of a completion's ratio."""


class VESPO(RowLoss):
    """Variational sequence-level soft policy optimization, as TRL 1.16 has it.

    A completion's gradient is multiplied by phi(w) = w^k exp(lambda (1 - w)), where w is the
    product of its tokens' ratios and of their importance weights. phi(1) = 1, and it has its
    maximum at w = k / lambda.
    """

    reports = (Metric("loss/phi", "Mean weight phi of a completion.", "factor"),)

    class Config(PolicyConfig):
        """Options of VESPO."""

        k_pos: Annotated[float, Field(ge=0)] = 2.0
        """k of completions with an advantage of 0 or more: how fast the weight falls towards 0."""
        lambda_pos: Annotated[float, Field(gt=0)] = 3.0
        """lambda of these: how fast it falls towards infinity."""
        k_neg: Annotated[float, Field(ge=0)] = 3.0
        """k of the others."""
        lambda_neg: Annotated[float, Field(gt=0)] = 2.0
        """lambda of the others."""

        @model_validator(mode="after")
        def _weights_by_token(self) -> VESPO.Config:
            mode = self.importance_correction.mode
            if mode.startswith("sequence"):
                raise ValueError(
                    f"importance_correction.mode {mode}: the ratio of a completion is made of its "
                    "tokens here, so the mode must be token_truncate, token_mask or off"
                )
            return self

    options: Config

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Mean over all loss tokens of -phi A logp, phi with the importance weights in it."""
        policy = self.terms(batch)
        phi_B1 = self._phi(policy, policy.importance_weight())
        policy.tally.mean("loss/phi", phi_B1.expand_as(policy.logp_BT))
        loss_BT = policy.masked(phi_B1 * (-policy.advantage_BT * policy.logp_BT))
        return policy.output(token_mean(loss_BT, batch.mask_BT, normalizer), normalizer)

    def _phi(self, policy: PolicyTerms, weight_BT: Tensor | None) -> Tensor:
        """(B, 1) weight of each completion."""
        config = self.options
        with torch.no_grad():
            log_w_B1 = policy.log_ratio_BT.clamp(-LOG_MOST, LOG_MOST).sum(dim=1, keepdim=True)
            if weight_BT is not None:
                log_BT = weight_BT.log().clamp(LOG_LEAST, LOG_MOST)
                log_w_B1 = log_w_B1 + log_BT.where(policy.mask_BT, 0.0).sum(dim=1, keepdim=True)
            log_w_B1 = log_w_B1.clamp(LOG_LEAST, LOG_MOST)
            above_B1 = self.row_advantage(policy) >= 0
            k_B1 = torch.where(above_B1, config.k_pos, config.k_neg)
            lambda_B1 = torch.where(above_B1, config.lambda_pos, config.lambda_neg)
            return (k_B1 * log_w_B1 + lambda_B1 * (1 - log_w_B1.exp())).exp()
