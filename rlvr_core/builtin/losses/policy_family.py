"""The family of policy-gradient losses: each is a surrogate per token and a way to average.

| loss | surrogate | averaged over | advantage |
|---|---|---|---|
| grpo | PPO clip | rows, each the mean of its tokens | group |
| dapo | PPO clip, wider above 1 | all loss tokens of the step | group |
| dr_grpo | PPO clip | rows, each its sum divided by a constant | center |
| luspo | PPO clip | rows, each the sum of its tokens | group |
| gspo | PPO clip of the sequence ratio | rows, each the mean of its tokens | group |
| cispo | -min(r, 5) A logp, r without a gradient | all loss tokens of the step | group |
| reinforce | -min(r, 1) A logp, r without a gradient | all loss tokens of the step | group |
| sapo | -A (4 / tau) sigmoid(tau (r - 1)) | rows, each the mean of its tokens | group |

KL, importance weights, entropy and metrics are ``PolicyLoss``'s, the same for all of them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from rlvr_core.api import Metric, Normalizer
from rlvr_core.api.services import (
    ClipConfig,
    ClippedPolicyLoss,
    PolicyLoss,
    PolicyTerms,
    RatioConfig,
    Tally,
    constant,
    row_mean,
    row_sum,
    token_mean,
)

# -- clipped ratio ------------------------------------------------------------------------------


class GRPO(ClippedPolicyLoss):
    """Group relative policy optimization, Shao et al. 2024, arXiv:2402.03300."""

    class Config(ClipConfig):
        """Options of GRPO."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)

    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """Mean over rows of the mean over tokens: every completion counts the same."""
        return row_mean(loss_BT, mask_BT, normalizer)


class DAPO(ClippedPolicyLoss):
    """Decoupled clip, token-level loss, Yu et al. 2025, arXiv:2503.14476."""

    class Config(ClipConfig):
        """Options of DAPO."""

        clip_high: Annotated[float, Field(gt=0)] = 0.28
        """The ratio counts up to ``1 + clip_high``."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)

    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """Mean over all loss tokens of the step: every token counts the same."""
        return token_mean(loss_BT, mask_BT, normalizer)


class DrGRPO(ClippedPolicyLoss):
    """GRPO without its length and difficulty bias, Liu et al. 2025, arXiv:2503.20783.

    Its gradients are smaller than GRPO's by about mean length / ``constant`` and by the rewards'
    spread, so a learning rate that suits GRPO is too low here (T9).
    """

    advantage = "center"

    class Config(ClipConfig):
        """Options of Dr. GRPO."""

        constant: Annotated[int, Field(gt=0)] | None = None
        """Tokens every completion's sum is divided by; null takes the run's cap on completions."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._constant = config.constant

    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """Mean over rows of the sum over tokens divided by a constant."""
        return constant(loss_BT, mask_BT, normalizer, self._constant)


class LUSPO(ClippedPolicyLoss):
    """Length-unbiased sequence policy optimization, arXiv:2602.05261.

    The paper's setting is ``ratio: sequence``. Its gradients are larger than those of ``grpo`` by
    about the mean length, so a learning rate that suits one does not suit the other (T9).
    """

    class Config(ClipConfig):
        """Options of LUSPO."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)

    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """Mean over rows of the sum over tokens: long completions are not discounted."""
        return row_sum(loss_BT, mask_BT, normalizer)


class GSPO(GRPO):
    """Group sequence policy optimization, Zheng et al. 2025, arXiv:2507.18071.

    A completion is clipped as one, so the range is the paper's: far narrower than that of a token.
    """

    class Config(ClipConfig):
        """Options of GSPO."""

        ratio: Literal["token", "sequence"] = "sequence"
        """Each token has its own, or the geometric mean over its row."""
        clip_low: Annotated[float, Field(gt=0, le=1)] = 3e-4
        """The ratio counts down to ``1 - clip_low``."""
        clip_high: Annotated[float, Field(gt=0)] = 4e-4
        """The ratio counts up to ``1 + clip_high``."""


# -- ratio as a bounded weight ------------------------------------------------------------------


class CISPO(PolicyLoss):
    """Clipped importance-sampling policy optimization, MiniMax 2025, arXiv:2506.13585.

    The ratio weighs a token's gradient and is bounded, but never ends it.
    """

    class Config(RatioConfig):
        """Options of CISPO."""

        cap: Annotated[float, Field(gt=0)] = 5.0
        """Largest ratio that a token's gradient is multiplied by."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._cap = config.cap

    def surrogate(self, terms: PolicyTerms, tally: Tally) -> Tensor:
        """-min(r, cap) A logp, without a gradient through r."""
        weight_BT = terms.ratio_BT.detach()
        tally.mean("clip_fraction/high", (weight_BT > self._cap).to(weight_BT))
        return -weight_BT.clamp(max=self._cap) * terms.advantage_BT * terms.logp_BT

    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """Mean over all loss tokens of the step."""
        return token_mean(loss_BT, mask_BT, normalizer)


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

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._pos, self._neg = config.tau_pos, config.tau_neg

    def surrogate(self, terms: PolicyTerms, tally: Tally) -> Tensor:
        """-A (4 / tau) sigmoid(tau (r - 1)); its gradient is that of -A r where r is 1."""
        # float32 whatever the batch: with 1.05 unrounded, values leave TRL's by 5e-8
        tau_BT = torch.where(terms.advantage_BT > 0, self._pos, self._neg)
        open_BT = torch.sigmoid(tau_BT * (terms.ratio_BT - 1))
        tally.mean("gate/mean", 4 * open_BT * (1 - open_BT))
        return -(open_BT * 4 / tau_BT) * terms.advantage_BT

    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """Mean over rows of the mean over tokens."""
        return row_mean(loss_BT, mask_BT, normalizer)
