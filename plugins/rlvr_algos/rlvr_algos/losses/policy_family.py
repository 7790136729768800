"""Further policy-gradient losses; the usual ones stand in ``rlvr_core.losses``.

| loss | surrogate | averaged over | advantage |
|---|---|---|---|
| luspo | PPO clip | rows, each the sum of its tokens | group |
| cispo | -min(r, 5) A logp, r without a gradient | all loss tokens of the step | group |
| reinforce | -min(r, 1) A logp, r without a gradient | all loss tokens of the step | group |
| sapo | -A (4 / tau) sigmoid(tau (r - 1)) | rows, each the mean of its tokens | group |
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from rlvr_core.algorithm.policy import ClipConfig, PolicyLoss, RatioConfig
from rlvr_core.algorithm.reduce import row_mean, row_sum, token_mean
from rlvr_core.api import LossBatch, LossOutput, Metric, Normalizer
from rlvr_core.losses import clipped


class LUSPO(PolicyLoss):
    """Length-unbiased sequence policy optimization, arXiv:2602.05261.

    The paper's setting is ``ratio: sequence``. Its gradients are larger than those of ``grpo`` by
    about the mean length, so a learning rate that suits one does not suit the other (T9).
    """

    class Config(ClipConfig):
        """Options of LUSPO."""

    options: Config

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Mean over rows of the sum over tokens: long completions are not discounted."""
        policy = self.terms(batch)
        loss_BT = policy.corrected(clipped(policy, self.options))
        return policy.output(row_sum(loss_BT, batch.mask_BT, normalizer), normalizer)


# -- ratio as a bounded weight ------------------------------------------------------------------


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


# -- smooth gate --------------------------------------------------------------------------------


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
